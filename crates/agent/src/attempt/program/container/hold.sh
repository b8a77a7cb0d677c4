# Holds a container of gradus open, and passes an order to stop on to what runs in it.
# Arguments: the folder of its files, and the process namespace of the machine.
folder=$1
namespace=$(readlink /proc/self/ns/pid 2> /dev/null)
script() { kill -TERM "$(< "$folder/script")" 2> /dev/null; }
# SIGTERM is for every process; without a process namespace of its own that would be all of the machine's.
all() {
  : > "$folder/told"
  if [[ $namespace && $namespace != "$2" ]]; then kill -TERM -1; else script; fi
}
trap 'all "$@"' TERM
# SIGUSR1 is for the script alone: its program knows already.
trap ': > "$folder/told"; script' USR1
# Scripts are started from here on.
echo $$ > "$folder/holder"
while :; do
  sleep 3600 &
  wait $!
done
