# Nothing of begin.sh and rails.py is left, nor of what the test has brought.
systemctl stop docker.service docker.socket containerd.service 2>/dev/null || true
! mountpoint -q /var/lib/docker || umount -l /var/lib/docker
! grep -q '^gb10-lab /sys/class overlay' /proc/mounts || umount -l /sys/class
rm -rf /usr/local/sbin/runc /usr/libexec/docker /srv/gb10-images /run/gb10-lab/class /dev/infiniband
for each in enp1s0f0np0 enP2p1s0f0np0 docker0; do ip link delete "$each" 2>/dev/null || true; done
