# What a host needs so that Docker runs containers in a container of the lab. Docker's store cannot lie on an overlay, and is larger than
# what a build asks for; it takes memory only for what is in it. Where this machine has cgroups of the first version, they are read-only.
mkdir -p /var/lib/docker
mountpoint -q /var/lib/docker || mount -t tmpfs -o size=64g tmpfs /var/lib/docker
for each in /sys/fs/cgroup/*/; do mount -o remount,bind,rw "$each" 2>/dev/null || true; done
# A container of a rank gets the devices of RDMA; nothing opens this one.
mkdir -p /dev/infiniband
test -e /dev/infiniband/uverbs0 || mknod /dev/infiniband/uverbs0 c 1 3
