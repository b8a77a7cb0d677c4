# Runs a program as another user, in a mount namespace of its own: NAME UID GID PLACE… -- PROGRAM ARGUMENT…
# Below folders that the user may not enter it finds the places and nothing else. Those with a + become its own.
# Nothing here reads a variable of the job, for all of it is done as root; they are named with a prefix until then.
name=$1 uid=$2 gid=$3 here=$PWD
shift 3
fail() {
  echo "gradus: this script cannot run as the user $name: $1" >&2
  exit 126
}
places=() owned=() shown=()
while [ "$1" != -- ]; do
  case $1 in
    +*) places+=("${1#+}") owned+=("${1#+}") ;;
    *) places+=("$1") shown+=("$1") ;;
  esac
  shift
done
shift
# The outermost folder on the way to a path that others may not enter.
closed() {
  local at= part rest=${1#/}
  while [[ $rest == */* ]]; do
    part=${rest%%/*} rest=${rest#*/} at=$at/$part
    (((8#$(stat -L -c %a "$at") & 1) == 0)) && echo "$at" && return
  done
}
for place in "${owned[@]}"; do
  chown -R -h "$uid:$gid" "$place" || fail "$place cannot be given to it"
done
# Never inside those that are its own: what it has left running there could put a link in the way.
for place in "${shown[@]}"; do
  find "$place" -maxdepth 1 ! -type l -exec chmod a+rX {} + || fail "$place cannot be shown to it"
done
stage=$(mktemp -d) && mount -n -t tmpfs -o mode=755 tmpfs "$stage" || fail "nothing can be mounted"
tops=()
for place in "${places[@]}"; do
  top=$(closed "$place")
  [ -n "$top" ] || continue
  # Whatever root's own umask is, these are to be entered.
  (umask 022 && if [ -d "$place" ]; then mkdir -p "$stage$place"; else mkdir -p "$stage${place%/*}" && : > "$stage$place"; fi)
  mount -n --rbind "$place" "$stage$place" || fail "$place cannot be mounted"
  [[ " ${tops[*]} " == *" $top "* ]] || tops+=("$top")
done
for top in "${tops[@]}"; do
  mount -n --rbind "$stage$top" "$top" || fail "$top cannot be mounted"
done
umount -n -l "$stage" && rmdir "$stage"
# The log is open already; a program may open it again as `/dev/stderr`. Those of `chown` itself would be `/dev/null`.
chown "$uid:$gid" "/proc/$$/fd/1" "/proc/$$/fd/2" 2> /dev/null
cd "$here" || fail "it may not enter $here"
restore='for GRADUS_JOB_NAME in "${!GRADUS_JOB_ENV_@}"; do
  export "${GRADUS_JOB_NAME#GRADUS_JOB_ENV_}=${!GRADUS_JOB_NAME}"
  unset "$GRADUS_JOB_NAME"
done
unset GRADUS_JOB_NAME
exec "$@"'
exec setpriv --reuid "$uid" --regid "$gid" --init-groups --inh-caps=-all --pdeathsig keep -- bash -c "$restore" bash "$@"
