# SPDX-License-Identifier: GPL-3.0-or-later
"""How a life of the unit ends: each failure has a name and a way out."""

from __future__ import annotations

import shlex

# What the next start will meet again: there is no use in waiting for it.
LASTING = (
    *("bad_settings", "driver_incoherent", "image_missing", "image_unfit", "docker_refused", "refused_flag"),
    "mount_moved",
    *("model_missing", "model_incomplete", "token_refused", "context_too_long", "kv_cache_short"),
    *("unknown_architecture", "unknown_quantization", "kernel_unsupported", "gpu_dead", "weights_unfit", "driver_old"),
    *("wrong_platform", "disk_refuses", "fabric_loopback", "fabric_no_interface"),
)
# What image, model and flags alone decide, and a start finds after minutes of loading: systemd does not try again.
NOT_AGAIN = (
    *("refused_flag", "context_too_long", "unknown_architecture", "unknown_quantization", "kernel_unsupported"),
    *("weights_unfit", "driver_old", "wrong_platform"),
)
# What comes from outside: it costs none of the starts that a host has for faults of its own.
OUTSIDE = ("docker_down", "peer_lost", "rail_down")
# {unit}: the unit of the service, which has the same name on all hosts of a cluster.
WAYS_OUT = {
    "bad_settings": "run site.yml, which writes the file anew",
    "docker_down": "`systemctl status docker` and `journalctl -u docker` say why",
    "docker_refused": "the text is Docker's own. A file of NVIDIA that is not there, or a device nvidia.com/gpu: the"
    " GPU's CDI file is older than the driver (`sudo systemctl restart nvidia-cdi-refresh`); /dev/infiniband: this"
    " host has no RDMA device; gb10.fleet.doctor says more",
    "image_missing": "run site.yml: the role vllm pulls it; or `docker pull` it",
    "image_unfit": "the image must have vllm on its path, with the libraries that it was built for: compare vllm_image"
    " with catalog/images.yml",
    "wrong_platform": "the image is for another processor, and a Spark is linux/arm64: take a tag for arm64"
    " (catalog/images.yml)",
    "driver_old": "the image's CUDA is newer than the driver: take an image for CUDA 13.0, or move the host's driver"
    " (docs/driver.md)",
    "disk_refuses": "the text names the file: its disk is read-only or broken (`dmesg`, `findmnt`), or its owner is"
    " another one (`ls -ld`); no password helps",
    "disk_full": "`df -h` and `du -xsh` of vllm_cache_directory; remove models that nobody serves",
    "memory_short": "stop what holds it (`nvidia-smi`, `ps`), or lower vllm_gpu_memory_utilization; what was stopped"
    " just now may still be giving it back, and a killed model can leave it with the driver until a reboot",
    "mount_moved": "see who made the link (`ls -ld`), put the folder back, or name another one in vllm_mounts",
    "driver_incoherent": "`sudo gb10-driver-coherence` says more; most often a reboot is missing",
    "rail_down": "look at cable, switch port and the other host's power; it goes on by itself when the rail is back",
    "gid_not_as_planned": "leave NCCL_IB_GID_INDEX out of vllm_environment, where it stands there; else run"
    " `ansible-playbook gb10.fleet.site -i INVENTORY --tags fabric`",
    "join_port_busy": "`ss -ltnp` names the process that has the port; set another vllm_join_port on the cluster",
    "waiting_for_peers": "`systemctl status {unit}` on the hosts that are missing says why; a firewall must"
    " let vllm_join_port pass. Of one that is dead, docs/inventory.md (One Spark of a pair is dead) says the way on",
    "another_loads": "one service of a host loads at a time; it goes on by itself when that one serves or ends",
    "peers_differ": "run site.yml for all hosts of the cluster, so that they get the same settings",
    "peer_lost": "the host that is named has the cause: `journalctl -u {unit}` there; all start again together. If it"
    " does not answer, see its power and cable; docs/inventory.md (One Spark of a pair is dead) says the way on",
    "rank_silent": "a rank did not answer for minutes: on each host `journalctl -k` and `nvidia-smi` (no memory left, a"
    " GPU that hangs), and `gb10 report` for the rails; a kernel that is compiled for the first time takes as long, and"
    " then the next start goes on",
    "ray_incomplete": "Ray has no GPU at an address that vLLM asks for: `journalctl -u {unit}` on the other hosts says"
    " whether they joined; leave VLLM_HOST_IP out of vllm_environment, so that both go by the same address",
    "port_busy": "`ss -ltnp` names the process that has the port; end it, or set another vllm_port (vllm_master_port"
    " between hosts)",
    "not_listening": "`ss -ltnp` says where the container listens: vllm_host and vllm_port must be true of it",
    "refused_flag": "the server of this image does not take a flag or its value: `gb10 plan` says which it knows",
    "model_missing": "check vllm_model, and vllm_huggingface_token for a gated model; without internet, the files"
    " must be in vllm_cache_directory, and the vocabulary of gpt-oss where TIKTOKEN_ENCODINGS_BASE says",
    "model_incomplete": "run site.yml, which fetches what is missing and compares all checksums; if it finds nothing"
    " to do, remove the model's marker in /var/cache/gb10-files first",
    "token_refused": "Hugging Face does not take vllm_huggingface_token: make a new one, or none for an open model",
    "context_too_long": "lower vllm_max_model_len to the length that the model was made for, or leave it out",
    "kv_cache_short": "set vllm_max_model_len to what fits, take an fp8 KV cache, or raise"
    " vllm_gpu_memory_utilization: `gb10 plan` counts it",
    "unknown_architecture": "the server of this image is too old for the model, or does not serve it: `gb10 plan` says"
    " which version does; set vllm_image",
    "unknown_quantization": "leave --quantization out, so that the model's own files say it; or take a checkpoint in"
    " another format (`gb10 plan`)",
    "kernel_unsupported": "the image has no kernel for this model on a GB10 (SM121): another checkpoint, backend or"
    " image, see `gb10 plan`; where ptxas does not know sm_121a, TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas in"
    " vllm_environment",
    "weights_unfit": "the files are whole, and vLLM builds another model of them: where weights of pictures or sound"
    " are missing, add --language-model-only; else take another checkpoint, or the image that its card names",
    "fabric_no_gid": "a rail has no address, or another host has none: `gb10.fleet.show_gids` and `ip -br address` on"
    " all hosts; leave NCCL_IB_GID_INDEX out of vllm_environment; run site.yml with --tags fabric",
    "fabric_unreachable": "the text names both ends: rails that share no subnet, a cable in the other port, or a"
    " switch between them; `ping` from the one address to the other, then site.yml with --tags fabric",
    "fabric_memory": "RDMA may not lock so much memory: --ulimit memlock=-1 and the capability IPC_LOCK, which the"
    " role sets (vllm_ulimits); else the host itself is out of memory",
    "fabric_no_interface": "no interface of this host has that name or address: leave NCCL_SOCKET_IFNAME,"
    " GLOO_SOCKET_IFNAME, NCCL_IB_HCA and VLLM_HOST_IP out of vllm_environment, for the role knows the names of each"
    " host",
    "fabric_loopback": "the host's own name stands beside 127.0.0.1 or 127.0.1.1 in /etc/hosts, so it calls itself:"
    " give the name its address there, or leave GLOO_SOCKET_IFNAME to the role",
    "fabric_half_idle": "NCCL takes one rail for another one, so cables carry nothing: each rail in a subnet of its"
    " own, and no NCCL_IB_HCA or NCCL_IB_SUBNET_AWARE_ROUTING by hand; `gb10 report` shows what each rail carries",
    "nccl_failed": "a line with NCCL WARN before it says why, on one of the hosts: `journalctl -u {unit}` on each; all"
    " need the same image, and rails that answer each other (`gb10 report`)",
    "kernel_fault": "a kernel of the image did what it may not; it starts again by itself. If it comes again, take"
    " another backend (--attention-backend, --moe-backend, --linear-backend) or image, or serve without drafts;"
    " `journalctl -k | grep -i xid` shows Xid 13 or 31 beside it",
    "compile_failed": "what torch or FlashInfer compiles ended: remove torch_compile_cache below vllm_cache_directory,"
    " where a start that was cut off leaves halves; if it ends so again, serve with --enforce-eager, slower,"
    " or take another image",
    "gpu_dead": "the GPU or its driver does not answer any more: `journalctl -k | grep -i -e xid -e nvrm`, then"
    " reboot the host (playbook gb10.fleet.reboot)",
    "out_of_memory": "`gb10 plan` says what fits: most often a shorter vllm_max_model_len, or another checkpoint. Of a"
    " bus error: `df -h /dev/shm` and `ls -lt /dev/shm`, for it may be full of what others left there",
    "killed": "`journalctl -u docker -u {unit}` around that time; a `docker kill` or `docker stop` by hand does it,"
    " and so do programs that kill for memory: `journalctl -u earlyoom -u systemd-oomd`",
    "start_failed": "the first error in `journalctl -u {unit}` is the cause",
    "engine_died": "the first error in `journalctl -u {unit}` is the cause; without one, see `journalctl -k` around"
    " that time, and `journalctl -p notice -t gb10_gateway _SYSTEMD_UNIT=gb10-gateway.service` for the requests that"
    " it had right before; it starts again by itself",
}


def way_out(verdict: str, unit: str) -> str:
    return WAYS_OUT[verdict].replace("{unit}", shlex.quote(unit))


class Failure(Exception):
    """The end of this life, by name."""

    def __init__(self, verdict: str, text: str) -> None:
        super().__init__(f"{verdict}: {text}")
        self.verdict, self.text = verdict, text


class Stopped(Exception):
    """systemd asked for the end."""
