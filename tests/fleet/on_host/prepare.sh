# What a host of these tests has beyond a freshly imaged one; run again, it changes nothing.
# Two interfaces that nobody uses, for a profile of ours: the end gb10x0 has a carrier while gb10x1 is up.
if ! test -e /sys/class/net/gb10x0; then
	ip link add gb10x0 type veth peer name gb10x1
	ip link set gb10x1 up
	ip link set gb10x0 up
fi
# A kernel module that counts as built in: a container cannot load one.
mkdir -p "/lib/modules/$(uname -r)"
echo kernel/gb10_extra.ko >"/lib/modules/$(uname -r)/modules.builtin"
# Other versions of packages, to drift to.
if ! test -e /etc/apt/sources.list.d/offer.sources; then
	sed 's/^Suites: .*/Suites: offer-toolkit/' /etc/apt/sources.list.d/dgx.sources >/etc/apt/sources.list.d/offer.sources
	apt-get -qq update
fi
# Something that the extra document wants to be gone; not on a host where it has been gone for that reason.
grep -q gb10-extra-old /var/lib/gb10-fleet/manifest.json 2>/dev/null || echo old >/etc/gb10-extra-old.conf
