//! Several processes per node, in bash: what torchrun does for a script, for any program.

/// Bash commands that start `count` processes of `command` on this node, with the variables that torchrun gives to its,
/// and `more` of them. `count` is a number or an arithmetic expression. The first process that fails ends the others, with
/// SIGTERM and 30 s later with SIGKILL as torchrun does, and its exit code is in `failed`.
///
/// bash's own `wait -n` misses a process that a signal ended before it was called, so they are looked at.
pub fn processes(count: &str, more: &str, command: &str) -> String {
    let more = if more.is_empty() { String::new() } else { format!("{more} \\\n    ") };
    format!(
        "processes={count} pids=() failed=0
for ((process = 0; process < processes; process++)); do
  RANK=$((NODE_RANK * processes + process)) LOCAL_RANK=$process \\
    WORLD_SIZE=$((PET_NNODES * processes)) LOCAL_WORLD_SIZE=$processes \\
    {more}{command} &
  pids+=($!)
done
while [[ ${{#pids[@]}} -gt 0 ]]; do
  for index in \"${{!pids[@]}}\"; do
    if ! kill -0 \"${{pids[index]}}\" 2> /dev/null; then
      code=0; wait \"${{pids[index]}}\" || code=$?
      unset \"pids[index]\"
      if [[ $code != 0 && $failed = 0 ]]; then
        failed=$code since=$SECONDS
        kill \"${{pids[@]}}\" 2> /dev/null || true
      fi
    fi
  done
  if [[ $failed != 0 && $SECONDS -gt $((since + 30)) ]]; then
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
