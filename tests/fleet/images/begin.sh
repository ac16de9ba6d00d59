# What a host needs so that Docker runs containers in a container of the lab. Docker's store cannot lie on an overlay, and is larger than
# what a build asks for; it takes memory only for what is in it. Where this machine has cgroups of the first version, they are read-only.
mkdir -p /var/lib/docker
mountpoint -q /var/lib/docker || mount -t tmpfs -o size=64g tmpfs /var/lib/docker
for each in /sys/fs/cgroup/*/; do mount -o remount,bind,rw "$each" 2>/dev/null || true; done
# A container of a rank gets the devices of RDMA; nothing opens this one.
mkdir -p /dev/infiniband
test -e /dev/infiniband/uverbs0 || mknod /dev/infiniband/uverbs0 c 1 3
# Where this machine may not raise a limit itself, its containers cannot either: theirs then start with the limits that there are.
if ! prlimit --memlock=unlimited:unlimited true 2>/dev/null; then
	cat >/usr/local/sbin/runc <<'END'
#!/usr/bin/python3
import json, os, sys
words = sys.argv[1:]
if "create" in words and "--bundle" in words:
    path = os.path.join(words[words.index("--bundle") + 1], "config.json")
    with open(path) as file:
        config = json.load(file)
    config["process"].pop("rlimits", None)
    with open(path, "w") as file:
        json.dump(config, file)
os.execv("/usr/sbin/runc", ["runc", *words])
END
	chmod 755 /usr/local/sbin/runc
fi
