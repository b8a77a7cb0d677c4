//! Several processes per node, in bash: what torchrun does for a script, for any program.

/// Bash commands that start `count` processes of `command` on this node, with the variables that torchrun gives to its,
/// and `more` of them. `count` is a number or an arithmetic expression. The first process that fails ends the others, with
/// SIGTERM and 30 s later with SIGKILL as torchrun does, and its exit code is in `failed`.
///
/// All write to one log. The lines of a process whose rank is not that of the log begin with it, `[rank1]: `, as PyTorch's own do;
/// what is labelled already stays. Those that fail before the others are told to end are written down as `[rank1]: ended with
/// code 1`: the agent reads both.
///
/// bash's own `wait -n` misses a process that a signal ended before it was called, so they are looked at.
pub fn processes(count: &str, more: &str, command: &str) -> String {
    let more = if more.is_empty() { String::new() } else { format!("{more} \\\n    ") };
    format!(
        "processes={count} pids=() failed=0 since=
for ((process = 0; process < processes; process++)); do
  rank=$((NODE_RANK * processes + process))
  exec 3>&1 4>&2
  # In a log that has another rank's name, its lines have its own.
  if [[ $rank != \"$NODE_RANK\" ]] && sed -u '' < /dev/null 2> /dev/null; then
    label=\"/^\\[rank[0-9]/!s/^/[rank$rank]: /\"
    exec 3> >(trap '' TERM; exec sed -u \"$label\") 4>&3
    [[ /dev/fd/1 -ef /dev/fd/2 ]] || exec 4> >(trap '' TERM; exec sed -u \"$label\" >&2)
  fi
  RANK=$rank LOCAL_RANK=$process \\
    WORLD_SIZE=$((PET_NNODES * processes)) LOCAL_WORLD_SIZE=$processes \\
    {more}{command} >&3 2>&4 3>&- 4>&- &
  pids+=($!)
  exec 3>&- 4>&-
done
while [[ ${{#pids[@]}} -gt 0 ]]; do
  for index in \"${{!pids[@]}}\"; do
    if ! kill -0 \"${{pids[index]}}\" 2> /dev/null; then
      code=0; wait \"${{pids[index]}}\" || code=$?
      unset \"pids[index]\"
      if [[ $code != 0 && -z $since ]]; then
        echo \"[rank$((NODE_RANK * processes + index))]: ended with code $code\" >&2
        [[ $failed != 0 ]] || failed=$code
      fi
    fi
  done
  if [[ $failed != 0 && -z $since ]]; then
    since=$SECONDS
    kill \"${{pids[@]}}\" 2> /dev/null || true
  elif [[ $failed != 0 && $SECONDS -gt $((since + 30)) ]]; then
    kill -9 \"${{pids[@]}}\" 2> /dev/null || true
  fi
  sleep 0.2
done
"
    )
}

/// Quotes a word for bash.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+^".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
