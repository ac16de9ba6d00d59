# Runs at the first boot from one stick for many hosts, as root, by cloud-init. Takes the folder of this machine for its
# seed, and starts the machine again with it. A machine without a folder is left as it is.
set -eu
umask 077
seed=/var/lib/cloud/seed/nocloud
[ ! -e "$seed/user-data" ] || exit 0
device=$(blkid -L CIDATA)
stick=$(mktemp -d /run/gb10-seed-XXXXXX)
mount -o ro "$device" "$stick"
serial=$(cat /sys/class/dmi/id/product_serial 2>/dev/null || true)
own=
for folder in "$stick"/hosts/*; do
	name=${folder##*/}
	fits=yes
	case $name in *serial-*) [ "${name##*serial-}" = "$serial" ] || fits= ;; esac
	case $name in mac-*)
		mac=${name#mac-}
		mac=${mac%%_*}
		cat /sys/class/net/*/address | tr -d : | grep -qx "$mac" || fits=
		;;
	esac
	[ -z "$fits" ] || own=$folder
done
if [ -z "$own" ]; then
	echo "gb10 seed: this machine (serial ${serial:-unknown}) has no folder on the stick; it is left as it is" >/dev/console
	umount "$stick"
	exit 0
fi
mkdir -p "$seed"
cp "$own/meta-data" "$own/network-config" "$seed/"
# From now on the stick is not looked at: what is on it for all hosts would win over what is of this one.
printf 'datasource_list: [NoCloud]\ndatasource:\n  NoCloud:\n    fs_label: null\n' >/etc/cloud/cloud.cfg.d/99-gb10-seed.cfg
cp "$own/user-data" "$seed/new-user-data"
mv "$seed/new-user-data" "$seed/user-data"
umount "$stick"
sync
echo "gb10 seed: this machine is ${own##*/}; it starts again" >/dev/console
systemctl --no-block reboot
sleep 300
