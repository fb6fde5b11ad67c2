#!/bin/sh
# Make a Python base image for the tests out of this Debian machine's own packages: no image is pulled.
#   base-image.sh [TAG]
# It has the machine's CA bundle, so that pip works in a build behind a proxy with a CA of its own.
set -eu
tag=${1:-rayfine/base:test}
export SOURCE_DATE_EPOCH=1700000000 LC_ALL=C.UTF-8
ca=${RAYFINE_CA_BUNDLE:-/etc/ssl/certs/ca-certificates.crt}
packages="base-files bash coreutils dash libc-bin findutils grep sed tar gzip procps python3 libpython3-stdlib media-types tzdata netbase libstdc++6 zlib1g"
missing=$(for name in $packages; do dpkg-query -W -f '' "$name" 2>/dev/null || echo "$name"; done)
if [ -n "$missing" ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
site=root/usr/local/lib/python3.11/dist-packages
mkdir -p root/etc/ssl/certs root/usr/local/bin root/tmp root/app "$site"
for link in bin sbin lib lib64; do mkdir -p "root/usr/$link"; ln -s "usr/$link" "root/$link"; done
mkdir -p root/dev root/proc root/sys root/run root/var/tmp root/var/log root/root
chmod 1777 root/tmp root/var/tmp
cp "$ca" root/etc/ssl/certs/ca-certificates.crt
printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' > root/etc/pip.conf
printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/usr/sbin/nologin\n' > root/etc/passwd
printf 'root:x:0:\nnogroup:x:65534:\n' > root/etc/group
printf 'hosts: files dns\npasswd: files\ngroup: files\n' > root/etc/nsswitch.conf
${PYTHON:-python3} -m pip install -q --root-user-action=ignore --no-deps --no-compile --ignore-installed \
  --target "$site" pip 2>/dev/null
rm -rf "$site/bin"
printf '#!/usr/bin/python3\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n' > root/usr/local/bin/pip
chmod 755 root/usr/local/bin/pip
ln -s /usr/bin/python3 root/usr/local/bin/python
ln -s /usr/bin/python3 root/usr/local/bin/python3
apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances $packages |
  grep -E '^[a-z0-9]' | sort -u | xargs dpkg-query -L 2>/dev/null |
  sed 's,^/\(bin\|sbin\|lib\|lib64\)/,/usr/\1/,' | sort -u |
  grep -vE '^/usr/share/(doc|man|locale|info|lintian|debconf)(/|$)|EXTERNALLY-MANAGED|-linux-gnu/perl' |
  while read -r file; do if [ -L "$file" ] || [ -f "$file" ]; then echo "${file#/}"; fi; done > list
tar -C / --no-recursion -cf - -T list | tar -C root --skip-old-files -xf -
# Packages list no compiled files, and without those every start would compile the library anew.
/usr/bin/python3 -m compileall -q -j0 --invalidation-mode unchecked-hash -s root -p / \
  root/usr/lib/python3.11 root/usr/local/lib || true
tar --sort=name --mtime=@$SOURCE_DATE_EPOCH --owner=0 --group=0 --numeric-owner -C root -cf root.tar .
docker import -c 'ENV PATH=/usr/local/bin:/usr/bin:/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt LANG=C.UTF-8' \
  -c "LABEL ${LABEL:-script=unknown}" -c 'WORKDIR /app' -c 'CMD ["python3"]' root.tar "$tag" >/dev/null
