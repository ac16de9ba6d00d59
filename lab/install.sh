#!/bin/sh
# SPDX-License-Identifier: GPL-3.0-or-later
# Runs inside a root that becomes a layer of the image: installs packages of the lab's repository, bound to /run/lab-apt.
set -eu
export DEBIAN_FRONTEND=noninteractive

build=$(mktemp)
echo "deb [signed-by=/usr/share/keyrings/gb10-lab-archive.gpg] copy:/run/lab-apt base main" >"$build"
apt="apt-get -qy -o Dir::Etc::SourceList=$build -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root"
$apt update
$apt install --no-install-recommends "$@"
$apt clean
rm "$build"
# A host knows its packages from the start, under the address it will have the repository at.
for list in /var/lib/apt/lists/_run_lab-apt_*; do
	mv "$list" "/var/lib/apt/lists/198.18.7.1:8180_apt_${list#*/_run_lab-apt_}"
done
