# Runs a script in a container of gradus. Once it was told to stop, its end is that of everything that it has started.
# Arguments: the folder of the container's files, the process namespace of the machine, and the script.
folder=$1
namespace=$(readlink /proc/self/ns/pid 2> /dev/null)
trap : TERM
# That a signal has ended it is said by its code; bash's own message, with this line, would be among the script's.
{ bash -c 'echo $$ > "$1/script"; exec bash "$2"' bash "$folder" "$3" 2>&3 3>&-; } 3>&2 2> /dev/null
code=$?
holder=$(< "$folder/holder")
others() {
  local file line fields
  for file in /proc/[0-9]*/stat; do
    { read -r line < "$file"; } 2> /dev/null || continue
    fields=(${line##*) })
    # The state and the parent follow the name.
    [[ ${fields[0]} = Z || ${fields[1]} = "$holder" ]] && continue
    [[ ${line%% *} = 1 || ${line%% *} = "$$" || ${line%% *} = "$holder" ]] || return 0
  done
  return 1
}
if [[ $namespace && $namespace != "$2" ]]; then
  while [[ -e $folder/told ]] && others; do sleep 0.1; done
fi
exit "$code"
