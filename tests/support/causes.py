"""What ends a start, by verdict: the words of it, and words of sound starts that are alike.

As vLLM's source, CUDA, PyTorch, NCCL, Docker and the hub word it; the figures and names are of real starts.
"""

from __future__ import annotations

# Verdict, where it was seen, and the words. Two blanks before them: they are the second line of pydantic's.
FAULTY: list[tuple[str, str, str]] = [
    (
        *("memory_short", "0.17 to 0.33"),
        "ValueError: Free memory on device cuda:0 (36.75/121.63 GiB) on startup is less than desired GPU memory"
        " utilization (0.85, 103.38 GiB). Decrease GPU memory utilization or reduce GPU memory used by other",
    ),
    (
        *("kv_cache_short", "0.17 to 0.28"),
        "ValueError: To serve at least one request with the models's max seq len (262144), (24.00 GiB KV cache is"
        " needed, which is larger than the available KV cache memory (9.61 GiB). Try increasing `gpu_memory",
    ),
    (
        "out_of_memory",
        "0.17 to 0.33",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory",
    ),
    (
        *("kernel_unsupported", "CUDA"),
        "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
    ),
    ("kernel_unsupported", "CUDA", "RuntimeError: CUDA error: an illegal instruction was encountered"),
    ("kernel_unsupported", "ptxas", "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"),
    (
        *("kernel_unsupported", "0.17 to 0.33"),
        "  Value error, The quantization method x is not supported for the current GPU. Minimum capability: 130.",
    ),
    (
        *("kernel_unsupported", "0.24"),
        "NotImplementedError: No NvFp4 MoE backend supports the deployment configuration.",
    ),
    ("kernel_unsupported", "up to 0.32", "NotImplementedError: No compiled nvfp4 quantization kernel"),
    ("kernel_unsupported", "0.32", "RuntimeError: Sparse Attention Indexer CUDA op requires DeepGEMM to be installed."),
    (
        "kernel_unsupported",
        "Triton",
        "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error",
    ),
    ("kernel_unsupported", "0.32", "ValueError: Unsupported FP8 MoE backend: triton for this configuration"),
    (
        *("kernel_unsupported", "0.32"),
        "ValueError: Weight input_size_per_partition = 1344 is not divisible by min_thread_k = 128.",
    ),
    ("kernel_unsupported", "0.32", "ValueError: The input size is not aligned with the quantized weight shape."),
    ("kernel_unsupported", "FA", "RuntimeError: FlashAttention forward only supports head dimension at most 256"),
    (
        "image_unfit",
        "dlopen",
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
    ),
    ("image_unfit", "Python", "ModuleNotFoundError: No module named 'flashinfer'"),
    ("weights_unfit", "torch", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x2048 and 4096x2048)"),
    ("memory_short", "0.32", "AssertionError: Error in memory profiling. Initial free memory 90 GiB, current 92 GiB."),
    (
        *("kv_cache_short", "up to 0.11"),
        "ValueError: The model's max seq len (262144) is larger than the maximum number of tokens that can be stored in"
        " KV cache (85904).",
    ),
    ("model_missing", "transformers", "OSError: You are trying to access a gated repo."),
    (
        "refused_flag",
        "0.32",
        "ValueError: Total number of attention heads (40) must be divisible by tensor parallel size",
    ),
    (
        "refused_flag",
        "transformers",
        "ValueError: The repository /m contains custom code which must be executed to load",
    ),
    ("gpu_dead", "PyTorch", "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment"),
    ("gpu_dead", "NVML", "pynvml.NVMLError_GpuIsLost: GPU is lost"),
    ("gpu_dead", "CUDA", "torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    (
        *("token_refused", "huggingface_hub"),
        "huggingface_hub.errors.HfHubHTTPError: 401 Client Error: Unauthorized. Invalid credentials in Authorization"
        " header",
    ),
    (
        *("unknown_architecture", "0.17 to 0.33"),
        "ValueError: Model architectures ['Nope9ForCausalLM'] are not supported for now. Supported"
        " architectures: dict_keys",
    ),
    (
        *("unknown_quantization", "0.17 to 0.33"),
        "  Value error, Quantization method specified in the model config (modelopt) does not match the quantization"
        " method specified in the `quantization` argument (fp8).",
    ),
    ("model_incomplete", "0.17 to 0.33", "RuntimeError: Cannot find any model weights with `/models/x`"),
    (
        *("port_busy", "PyTorch"),
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address."
        " port: 29501, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    ),
    (
        *("refused_flag", "0.17 to 0.33"),
        "  Value error, World size (2) is larger than the number of available GPUs (1) in this node.",
    ),
    (
        *("kernel_unsupported", "vLLM issue 40153, a GB10"),
        "NotImplementedError: No compiled cutlass_scaled_mm for a compute capability less than CUDA device capability:"
        " 121",
    ),
    (
        *("kernel_unsupported", "vLLM issue 30163, a pair"),
        "RuntimeError: [FP4 gemm Runner] Failed to run cutlass FP4 gemm on sm120. Error: Error Internal",
    ),
    (
        *("kernel_unsupported", "vLLM issue 28589, a GB10"),
        "ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. Reason:"
        " ['attention sinks not supported']",
    ),
    (
        *("kernel_unsupported", "an owner, FP8 over three hosts"),
        "ValueError: The output_size of gate's and up's weight = 320 is not divisible by weight quantization block_n"
        " = 128.",
    ),
    (
        *("kernel_unsupported", "vLLM 0.32.0, models/qwen4_exp"),
        "NotImplementedError: Qwen4Exp QSA requires a BF16 main KV cache",
    ),
    (
        *("kernel_unsupported", "vLLM pull request 31740, a GB10"),
        "RuntimeError: No supported CUDA architectures found for major versions [10].",
    ),
    ("kernel_unsupported", "vLLM 0.32.0", "ValueError: SparseMQAIndexer requires an SM100-class GPU and DeepGEMM."),
    ("kernel_unsupported", "an owner's start", "torch.AcceleratorError: CUDA error: operation not permitted"),
    (
        *("kernel_unsupported", "triton issue 8182, the shared memory of SM120"),
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit:"
        " 101376. Reducing block sizes or `num_stages` may help.",
    ),
    (
        *("driver_old", "NGC 26.05 on driver 580"),
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
    ),
    ("out_of_memory", "PyTorch", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    ("gpu_dead", "PyTorch, in a container without the GPU", "RuntimeError: No CUDA GPUs are available"),
    ("driver_incoherent", "NVML", "RuntimeError: Failed to initialize NVML: Driver/library version mismatch"),
    (
        "model_missing",
        "gpt-oss offline",
        "openai_harmony.HarmonyError: error downloading or loading vocab file: failed",
    ),
    ("out_of_memory", "NCCL", "spark-a:1:1 [0] transport.cc:33 NCCL WARN Cuda failure 2 'out of memory'"),
    (
        *("peer_lost", "PyTorch, TCPStore"),
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
    ),
    ("out_of_memory", "cuBLAS", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
    ("disk_full", "strerror(3)", "OSError: [Errno 122] Disk quota exceeded: '/root/.cache/vllm/x'"),
    ("disk_refuses", "strerror(3)", "PermissionError: [Errno 13] Permission denied: '/root/.cache/vllm'"),
    ("wrong_platform", "runc", "exec /usr/bin/vllm: exec format error"),
    (
        *("weights_unfit", "djangodevreng/dgx-spark-benchmarks, KAT-Coder-V2.5 on 0.26.0"),
        "ValueError: Following weights were not initialized from checkpoint: {'visual.blocks.23.norm1.weight'}",
    ),
    (
        "weights_unfit",
        "Gemma 4 26B with its MTP assistant, 0.26.0",
        "RuntimeError: a and b must have same reduction dim",
    ),
    (
        *("fabric_loopback", "aws-samples/aws-do-eks pull request 69"),
        "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:152]"
        " timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:14215",
    ),
    (
        *("fabric_unreachable", "the same, between hosts"),
        "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:152]"
        " timed out connecting: SO_ERROR: No route to host, remote=[10.0.2.2]:14215",
    ),
    ("fabric_no_interface", "Gloo", "RuntimeError: Unable to find address for: eth0"),
    (
        *("fabric_no_gid", "a pair"),
        "spark-b:64:64 [0] misc/ibvwrap.cc:380 NCCL WARN Call to ibv_modify_qp failed with 61 No data available, on dev"
        " roceP2p1s0f0:1, curr state INIT, next state RTR, local GID index 3, local GID ::, remote GID ::ffff:10.0.2.2",
    ),
    (
        *("fabric_unreachable", "NCCL issue 2013"),
        "host-01:1:1 [5] ibvwrap.c:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev"
        " mlx_x:1, curr state INIT, next state RTR, local GID ::ffff:10.0.1.1, remote GID ::ffff:10.0.2.2",
    ),
    (
        *("fabric_unreachable", "NCCL issue 426"),
        "worker-1:946:988 [0] transport/net_ib.cc:839 NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0,"
        " vendor err 129",
    ),
    (
        *("fabric_memory", "a pair"),
        "spark-b:64:64 [0] NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
    ),
    (
        *("peer_lost", "the other host of nccl-tests issue 185"),
        "host-3:22:52 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer host-2<41109>",
    ),
    (
        *("nccl_failed", "PyTorch, ProcessGroupNCCL"),
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3356, unhandled cuda error (run with"
        " NCCL_DEBUG=INFO for details), NCCL version 2.28.9",
    ),
    (
        *("nccl_failed", "vLLM, pynccl_wrapper"),
        "RuntimeError: NCCL error: internal error - please report this issue to the NCCL developers",
    ),
    (
        *("nccl_failed", "PyTorch, ProcessGroupNCCL"),
        "[rank0]:[E ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7,"
        " OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600013 milliseconds before timing out, an error",
    ),
    (
        *("nccl_failed", "NCCL, init.cc"),
        "spark-a:1:1 [0] init.cc:943 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device f000",
    ),
    (
        *("compile_failed", "PyTorch, _inductor/exc.py"),
        "torch._inductor.exc.InductorError: AttributeError: 'NoneType' object has no attribute 'group'",
    ),
    (
        *("compile_failed", "PyTorch, _dynamo/exc.py"),
        "torch._dynamo.exc.BackendCompilerFailed: backend='<vllm.compilation.backends.VllmBackend object>' raised:",
    ),
    (
        *("compile_failed", "vLLM, compilation"),
        "FileNotFoundError: [Errno 2] No such file or directory:"
        " '/root/.cache/vllm/torch_compile_cache/3f/rank_0_0/inductor_cache/ab/cab.py'",
    ),
    (
        *("image_unfit", "Triton, runtime/build.py"),
        "torch._inductor.exc.InductorError: RuntimeError: Failed to find C compiler. Please specify via CC environment",
    ),
    ("out_of_memory", "PyTorch", "torch._inductor.exc.InductorError: OutOfMemoryError: CUDA out of memory."),
    (
        *("killed", "an owner with earlyoom"),
        "Worker proc VllmWorker-0 died unexpectedly (exit code: -15), shutting down executor.",
    ),
    (
        *("kernel_unsupported", "GuigsEvt/dgx_spark_config issue 5"),
        "FATAL: kernel `fmha_cutlassF_f32_aligned_64x128_rf_sm80` is for sm80-sm100, but was built for sm121",
    ),
    (
        *("kernel_unsupported", "MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark issue 119"),
        "RuntimeError: Assertion error (/deepgemm/csrc/apis/../jit_kernels/impls/../../jit/compiler.hpp:147): runtime"
        " != nullptr",
    ),
    (
        *("kernel_unsupported", "sparkrun issue 220, eight GB10s"),
        "RuntimeError: Assertion error (include_parser.hpp:69): Failed to open: /usr/local/lib/python3.12/dist-packages"
        "/vllm/third_party/deep_gemm/include/deep_gemm/impls/sm121_fp8_mqa_logits.cuh",
    ),
    (
        *("kernel_unsupported", "vLLM issue 47130, SM120"),
        "RuntimeError: Assertion error (csrc/apis/../utils/layout.hpp:76): Unknown recipe",
    ),
    (
        *("kernel_unsupported", "vLLM issue 50660"),
        "RuntimeError: Assertion error (/workspace/.deps/flashmla-src/csrc/sm90/prefill/sparse/phase1.cuh:614):"
        " Assertion `res == CUresult::CUDA_SUCCESS` failed.",
    ),
    ("weights_unfit", "vLLM issue 51581", "AttributeError: 'QKVParallelLinear' object has no attribute 'weight'"),
    (
        *("kernel_unsupported", "vLLM, FlashMLA"),
        "RuntimeError: vllm_flashmla_C is not available, likely was not compiled due to insufficient nvcc version",
    ),
    (
        *("kernel_unsupported", "FlashInfer issue 2342, a GB10"),
        "RuntimeError: Failed to launch the CUTLASS kernel. Last CUDA error is: no error",
    ),
    (
        *("kernel_unsupported", "CUTLASS, its DSL for Python"),
        "cutlass.base_dsl.common.OpError: expects arch to be one of ['sm_100a', 'sm_100f'], but got sm_121a",
    ),
    (
        *("image_unfit", "sparkrun issue 280, a GB10"),
        "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/lib/python3.12/dist-packages/flashinfer"
        "/data/csrc/nv_internal/tensorrt_llm/cutlass_instantiations/120_mxfp4min'",
    ),
    ("image_unfit", "glibc", "ImportError: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /x/_C.abi3.so)"),
    ("image_unfit", "Python", "ImportError: cannot import name 'Gemma4Config' from 'transformers' (/x/__init__.py)"),
    (
        *("image_unfit", "SGLang issue 18203, a GB10"),
        "ImportError: [sgl_kernel] CRITICAL: Could not load any common_ops library!",
    ),
    ("image_unfit", "PyTorch", "AttributeError: '_OpNamespace' '_C' object has no attribute 'rms_norm'"),
    (
        *("unknown_architecture", "transformers"),
        "ValueError: Tokenizer class TokenizersBackend does not exist or is not currently imported.",
    ),
    (
        *("weights_unfit", "vLLM issue 42813"),
        "AssertionError: Tried to load weights of size torch.Size([3096576, 1])to a parameter of size torch.Size([5376,"
        " 1152])",
    ),
    ("weights_unfit", "vLLM issue 28274", "KeyError: 'layers.0.mlp.experts.w2_weight'"),
    ("weights_unfit", "vLLM issue 11010", "KeyError: 'layers.0.mlp.down_proj.weight.absmax'"),
    (
        "ray_incomplete",
        "vLLM issue 29265",
        "ValueError: Current node has no GPU available. current_node_resource={}.",
    ),
    ("killed", "MiaAI-Lab, SGLang on a pair", "RuntimeError: Rank 0 scheduler died (exit code: -9)"),
    (
        *("refused_flag", "vLLM, v1/worker"),
        "ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (118).",
    ),
    (
        *("refused_flag", "vLLM, entrypoints/chat_utils.py"),
        "ValueError: The supplied chat template string (./x.jinja) appears path-like, but doesn't exist!",
    ),
    (
        *("nccl_failed", "NCCL issue 1052"),
        "node2:1:2 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer with error 4, opcode 0, len"
        " 0, vendor err 81 (Send) localGid ::ffff:10.0.1.1 remoteGid ::ffff:10.0.1.2",
    ),
    (
        *("kernel_fault", "FlashInfer issue 3170, a GB10"),
        "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered",
    ),
    (
        *("kernel_fault", "gitcommit90/glm-5.3-one-spark issue 2"),
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    ),
    ("kernel_fault", "CUDA", "torch.AcceleratorError: CUDA error: unspecified launch failure"),
    ("kernel_fault", "vLLM issue 52877, a GB10", "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    ("kernel_fault", "NCCL issue 2213, a pair", "*** SIGSEGV received at time=1775734074 on cpu 19 ***"),
    (
        *("image_unfit", "vLLM issue 52768"),
        "transformers.configuration_utils.AmbiguousGlobalPerLayerAttributeError: `head_dim` is a per-layer attribute",
    ),
    (
        *("peer_lost", "MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks issue 159"),
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote"
        " server shutdown or crash?",
    ),
    (
        *("nccl_failed", "SGLang issue 10216"),
        "[rank6]:[E909 08:45:31.970959174 ProcessGroupNCCL.cpp:1870] [PG ID 0 PG GUID 0 Rank 6] Received a dump signal"
        " due to a collective timeout from this local rank",
    ),
    ("compile_failed", "FlashInfer issue 2252, a GB10", "RuntimeError: Ninja build failed. Ninja output:"),
    # Fresh words of 2026-11-29, by what raised them
    (
        *("kernel_unsupported", "SGLang issue 31864, FlashInfer"),
        "RuntimeError: Error in function 'run' at /x/flashinfer/data/csrc/trtllm_batched_gemm_runner.cu:305:",
    ),
    (
        *("kernel_unsupported", "1CatAI/1Cat-vLLM issue 94"),
        "RuntimeError: ('Quantization scheme is not supported for ', 'the current GPU. Min capability: 75. ')",
    ),
    (
        *("image_unfit", "eugr/spark-vllm-docker issue 238, a GB10"),
        "TypeError: FusedMoE.__init__() got an unexpected keyword argument 'reduce_results'",
    ),
    ("out_of_memory", "Ray", "ray.exceptions.WorkerCrashedError: 1 Workers killed due to memory pressure (OOM)"),
    (
        "fabric_unreachable",
        "gpustack issue 2125",
        "RuntimeError: Gloo connectFullMesh failed with [pair.cc:144] no error",
    ),
    (
        *("ray_incomplete", "eugr/spark-vllm-docker issue 227, two GB10s"),
        "ValueError: Cannot provide a placement group of placement_group_specs=[{'GPU': 1.0}] within 1800 seconds.",
    ),
    ("rank_silent", "vLLM issue 46611, two GB10s", "TimeoutError: RPC call to sample_tokens timed out."),
    (
        *("unknown_quantization", "vLLM issue 19853"),
        "NotImplementedError: No compressed-tensors compatible scheme was found.",
    ),
    ("refused_flag", "vLLM issue 43093", "AssertionError: gpu_block_size=64 not divisible by hash_block_size=256."),
    (
        *("kernel_fault", "FlashAttention issue 1763"),
        "RuntimeError: CUDA error (/x/hopper/flash_fwd_launch_template.h:188): invalid argument",
    ),
    ("kernel_unsupported", "vLLM", "RuntimeError: Currently, block scaled fp8 gemm is not implemented for Blackwell"),
    (
        *("fabric_unreachable", "NCCL"),
        "host-2:1:2 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45763> failed : "
        "Software caused connection abort",
    ),
    ("token_refused", "the hub", "HfHubHTTPError: 403 Forbidden: Please enable access to public gated repositories in"),
    ("model_missing", "hf_xet", "RuntimeError: Data processing error: CAS service error : Request failed after 5"),
    (
        "nccl_failed",
        "NCCL",
        "h:1:2 [0] bootstrap.cc:131 NCCL WARN Bootstrap Root : rank 1 of 8 ranks has already checked in",
    ),
    ("peer_lost", "Ray", "ray.exceptions.NodeDiedError: Task failed because the node it was running on is dead or"),
    (
        "peer_lost",
        "Ray",
        "WARNING worker.py:1799 -- The node 10.0.3.192 has been marked dead because the detector has missed",
    ),
    ("killed", "Ray", "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."),
    (
        "image_unfit",
        "vLLM issue 44911",
        "AttributeError: 'MistralCommonImageProcessor' object has no attribute 'fetch_images'",
    ),
    ("image_unfit", "InternVL issue 1186", "AttributeError: Qwen2TokenizerFast has no attribute start_image_token"),
]
# Lines of starts that served, or that failed for another reason, by the verdict that they are not.
HEALTHY: dict[str, str] = {
    "refused_flag": "WARNING: argument --model is deprecated",
    "context_too_long": "Using max model len 131072",
    "kv_cache_short": "Available KV cache memory: 16.46 GiB",
    "memory_short": "Checkpoint size: 64.56 GiB. Available RAM: 48.37 GiB. Auto-prefetch failed its check",
    "gpu_dead": "torch.cuda: device 0 is initialized, error count 0",
    "driver_incoherent": "NVML: driver and library have the version 580.142, no error",
    "driver_old": "CUDA driver version 13.0, runtime 13.0, no error",
    "kernel_unsupported": "Using 'MARLIN' NvFp4 MoE backend out of potential backends; error-free on SM121",
    "image_unfit": "No module named tests was imported, error-free",
    "out_of_memory": "set expandable_segments if memory errors come",
    "disk_full": "No error: 120 GiB of space left on /root/.cache",
    "disk_refuses": "OSError: the tokenizer has no file, permission is granted",
    "wrong_platform": "ValueError: unknown format of the executor",
    "fabric_loopback": "ConnectionError: 10.0.1.1 does not answer",
    "fabric_no_interface": "NCCL INFO Bootstrap : Using enp1s0f0np0:10.0.1.1<0>, 0 failed",
    "fabric_no_gid": "NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE, local GID ::ffff:10.0.1.1, 0 failed",
    "fabric_memory": "NCCL INFO ibv_reg_mr_iova2 is there, 0 failed",
    "fabric_unreachable": "NCCL INFO Connected all rings, 0 failed",
    "ray_incomplete": "INFO ray_utils.py: Waiting for creating a placement group of specs for 10 seconds, no error",
    "rank_silent": "INFO shm_broadcast.py: No available shared memory broadcast block found in 60 seconds, no error",
    "peer_lost": "INFO: client closed the connection, no error",
    "peers_differ": "INFO: the configuration is that of all engines, no error",
    "port_busy": "INFO: address 0.0.0.0:8000, no error",
    "token_refused": "Warning: You are sending unauthenticated requests to the HF Hub, errors may follow",
    "unknown_quantization": "Detected ModelOpt NVFP4 checkpoint, no error",
    "unknown_architecture": "Resolved architecture: NemotronHForCausalLM, no error",
    "model_incomplete": "error-free: 5 of 5 safetensors",
    "weights_unfit": "Some weights of the draft are tied, no error",
    "model_missing": "A new version of the following files was downloaded, no error",
    "nccl_failed": "INFO pynccl.py: vLLM is using nccl==2.28.9, error-free",
    "compile_failed": "INFO backends.py: Using cache directory: /root/.cache/vllm/torch_compile_cache/3f, no error",
    "kernel_fault": "INFO Xid 13 would be an illegal memory access, no error",
    "killed": "Worker proc VllmWorker-0 died unexpectedly (exit code: None), shutting down executor.",
}
