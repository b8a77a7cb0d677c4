//! The rank's end of the agent's socket: reports up, orders down, one JSON message per line.
//!
//! Training never waits for it. [`Channel::send`] queues a report that a thread writes; another thread reads orders for
//! [`Channel::try_order`]. SIGTERM and SIGINT are orders to stop. Without an agent the work could not be reported or
//! billed, so the process exits at once with [`AGENT_GONE`].
//!
//! If the socket's path is empty, reports are lines on stdout and only signals give orders.

mod outbox;

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use domain::rank::{RankCommand, Report};
use signal_hook::consts::{SIGINT, SIGTERM};

use self::outbox::Outbox;

/// Exit code of a rank whose agent is gone: `EX_TEMPFAIL` of sysexits(3), because another attempt may succeed.
pub const AGENT_GONE: i32 = 75;

/// The connection to the agent.
#[derive(Debug)]
pub struct Channel {
    shared: Arc<Shared>,
    socket: Option<UnixStream>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    outbox: Outbox,
    orders: Mutex<VecDeque<RankCommand>>,
    /// When the agent kills this process, once it has said so.
    kill_at: Mutex<Option<Instant>>,
    /// Set by a signal, as one more order.
    stop: Arc<AtomicBool>,
    /// The last report was sent; the agent may disconnect.
    finishing: AtomicBool,
    /// Another rank reports for this one.
    hushed: AtomicBool,
}

impl Channel {
    /// Connects to the agent's socket, or to stdout if the path is empty, and installs signal handlers.
    ///
    /// # Errors
    /// If there is no listener.
    pub fn connect(socket: &str) -> io::Result<Channel> {
        let channel = match socket {
            "" => Channel::over(None, Box::new(io::stdout()))?,
            path => {
                let stream = UnixStream::connect(path)?;
                let writing = stream.try_clone()?;
                Channel::over(Some(stream), Box::new(writing))?
            }
        };
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&channel.shared.stop))?;
        }
        Ok(channel)
    }

    fn over(socket: Option<UnixStream>, sink: Box<dyn Write + Send>) -> io::Result<Channel> {
        let shared = Arc::new(Shared::default());
        if let Some(socket) = &socket {
            let reading = socket.try_clone()?;
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("orders".into()).spawn(move || listen(&shared, reading))?;
        }
        let writer = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("reports".into()).spawn(move || speak(&shared, sink))?
        };
        Ok(Channel { shared, socket, writer: Some(writer) })
    }

    /// From now on only the last report is sent and no orders are read: another rank reports for this one.
    pub fn hush(&self) {
        self.shared.hushed.store(true, Ordering::Release);
    }

    /// Queues a report and returns at once. Reports arrive in the order they were sent.
    pub fn send(&self, report: Report) {
        let is_last = matches!(report, Report::Trained | Report::Stopped { .. } | Report::Failed(_));
        if self.shared.hushed.load(Ordering::Acquire) && !is_last {
            return;
        }
        if is_last {
            self.shared.finishing.store(true, Ordering::Release);
        }
        self.shared.outbox.put(report);
    }

    /// The next order, from the agent or by a signal, without waiting.
    pub fn try_order(&self) -> Option<RankCommand> {
        if self.shared.hushed.load(Ordering::Acquire) {
            return None;
        }
        if self.shared.stop.swap(false, Ordering::Relaxed) {
            return Some(RankCommand::Stop { within_us: None });
        }
        lock(&self.shared.orders).pop_front()
    }

    /// When the agent kills this process, if it was ordered to stop within a time that is known.
    pub fn kill_at(&self) -> Option<Instant> {
        *lock(&self.shared.kill_at)
    }

    /// Waits until every report is written, and hangs up. To be called before `main` returns.
    pub fn finish(mut self) {
        self.shared.finishing.store(true, Ordering::Release);
        self.shared.outbox.close();
        if let Some(writer) = self.writer.take() {
            // A panic there has printed its own message.
            let _ = writer.join();
        }
        if let Some(socket) = &self.socket {
            // Already closed is closed.
            let _ = socket.shutdown(Shutdown::Write);
        }
    }
}

/// Writes reports out until the outbox is closed and empty.
fn speak(shared: &Shared, mut sink: Box<dyn Write + Send>) {
    while let Some((reports, omitted)) = shared.outbox.next_batch() {
        let mut text = Vec::new();
        for report in &reports {
            // Values of these types are always JSON, and memory takes any number of bytes.
            if serde_json::to_writer(&mut text, report).is_ok() {
                text.push(b'\n');
            }
        }
        if omitted > 0 {
            let note = format!("{omitted} step reports were left out, as nobody read them in time");
            let note = serde_json::to_string(&Report::Note { text: note }).unwrap_or_default();
            text.extend_from_slice(note.as_bytes());
            text.push(b'\n');
        }
        if sink.write_all(&text).and_then(|()| sink.flush()).is_err() {
            end();
        }
    }
}

/// Takes orders until the agent hangs up.
fn listen(shared: &Shared, socket: UnixStream) {
    for line in BufReader::new(socket).lines() {
        let Ok(line) = line else { break };
        match serde_json::from_str(&line) {
            Ok(order) => {
                if let RankCommand::Stop { within_us: Some(within) } = order {
                    *lock(&shared.kill_at) = Instant::now().checked_add(Duration::from_micros(within));
                }
                lock(&shared.orders).push_back(order);
            }
            // Its stderr is a log. An order of a newer agent is no reason to lose work.
            Err(error) => {
                drop(writeln!(io::stderr(), "the order `{}` is not understood: {error}", line.escape_debug()))
            }
        }
    }
    if !shared.finishing.load(Ordering::Acquire) {
        end();
    }
}

/// Ends the process without running destructors, which would pull libraries away from under threads that compute.
fn end() -> ! {
    // There may be no reader.
    let _ = writeln!(io::stderr(), "the agent is gone, so this rank ends");
    signal_hook::low_level::exit(AGENT_GONE)
}

/// A thread that panicked leaves complete reports and orders behind, so they are still valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::process::{Child, Command, Stdio};

    use domain::finding::{Cause, Finding};
    use domain::rank::{Checkpointed, Fetching, Step};

    use super::outbox::STEPS_HELD;
    use super::*;

    fn step(step: u64) -> Report {
        Report::Step(Step {
            step,
            epoch: 0,
            loss: 0.5,
            lr: 0.1,
            samples: 32,
            step_us: 900,
            data_wait_us: 5,
            checkpoint_us: 0,
            data: Fetching::default(),
        })
    }

    fn checkpointed(step: u64) -> Report {
        Report::Checkpointed(Checkpointed { step, bytes: 1, stall_us: 2, commit_us: 3 })
    }

    /// A channel and the agent's end of it.
    fn pair() -> (Channel, BufReader<UnixStream>) {
        let (rank, agent) = UnixStream::pair().unwrap();
        let writing = rank.try_clone().unwrap();
        (Channel::over(Some(rank), Box::new(writing)).unwrap(), BufReader::new(agent))
    }

    fn read(agent: &mut BufReader<UnixStream>) -> Report {
        let mut line = String::new();
        agent.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("`{line}`: {error}"))
    }

    fn wait_for_order(channel: &Channel) -> RankCommand {
        loop {
            if let Some(order) = channel.try_order() {
                return order;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn reports_arrive_whole_and_in_order() {
        let (channel, mut agent) = pair();
        let mut sent = Vec::new();
        for number in 1..=3000 {
            sent.push(step(number));
            if number % 500 == 0 {
                sent.push(checkpointed(number));
            }
        }
        sent.push(Report::Note { text: "two\nlines".into() });
        sent.push(Report::Failed(Finding::new(Cause::NotFinite, "the loss of step 3000 is not a number")));
        for report in &sent {
            channel.send(report.clone());
        }
        let finishing = std::thread::spawn(move || channel.finish());
        for report in &sent {
            assert_eq!(read(&mut agent), *report);
        }
        finishing.join().unwrap();
        assert_eq!(agent.read_line(&mut String::new()).unwrap(), 0, "the rank hangs up after its last word");
    }

    #[test]
    fn sending_never_waits_for_an_agent_that_does_not_read() {
        let (channel, mut agent) = pair();
        // Far more than a socket buffers. This would never return if `send` wrote.
        let total = STEPS_HELD as u64 * 3;
        for number in 1..=total {
            channel.send(step(number));
        }
        channel.send(checkpointed(total));
        let finishing = std::thread::spawn(move || channel.finish());
        let (mut steps, mut last, mut notes, mut durable) = (0, 0, Vec::new(), 0);
        let mut line = String::new();
        while agent.read_line(&mut line).unwrap() > 0 {
            match serde_json::from_str(&line).unwrap() {
                Report::Step(step) => {
                    assert!(step.step > last, "order is kept");
                    (steps, last) = (steps + 1, step.step);
                }
                Report::Note { text } => notes.push(text),
                Report::Checkpointed(done) => durable = done.step,
                other => panic!("{other:?}"),
            }
            line.clear();
        }
        finishing.join().unwrap();
        assert_eq!(durable, total, "what is more than a step report is never left out");
        let omitted: u64 = notes.iter().map(|note| note.split(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(steps + omitted, total, "what is left out is said: {notes:?}");
        assert!(omitted > 0);
    }

    #[test]
    fn orders_are_taken_one_by_one_and_nonsense_is_passed_over() {
        let (channel, mut agent) = pair();
        assert_eq!(channel.try_order(), None);
        agent
            .get_mut()
            .write_all(b"{\"order\":\"checkpoint\"}\nnonsense\n{\"order\":\"dance\"}\n{\"order\":\"stop\"}\n")
            .unwrap();
        assert_eq!(wait_for_order(&channel), RankCommand::Checkpoint);
        assert_eq!(wait_for_order(&channel), RankCommand::Stop { within_us: None });
        assert_eq!(channel.try_order(), None);
        channel.finish();
    }

    #[test]
    fn a_stop_within_a_time_says_when_the_rank_is_killed() {
        let (channel, mut agent) = pair();
        let hour = Duration::from_secs(3_600);
        let order = RankCommand::stop_within(hour);
        let before = Instant::now();
        // An agent of an earlier version does not say it.
        writeln!(agent.get_mut(), "{{\"order\":\"stop\"}}").unwrap();
        assert_eq!(wait_for_order(&channel), RankCommand::Stop { within_us: None });
        assert_eq!(channel.kill_at(), None);
        writeln!(agent.get_mut(), "{}", serde_json::to_string(&order).unwrap()).unwrap();
        assert_eq!(wait_for_order(&channel), order);
        let kill_at = channel.kill_at().unwrap();
        assert!(before + hour <= kill_at && kill_at <= Instant::now() + hour);
        channel.finish();
    }

    #[test]
    fn an_agent_that_hangs_up_after_the_last_word_does_no_harm() {
        let (channel, mut agent) = pair();
        channel.send(Report::Trained);
        assert_eq!(read(&mut agent), Report::Trained);
        // The listening thread sees this before `finish` is called, and would end this very process.
        drop(agent);
        std::thread::sleep(Duration::from_millis(20));
        channel.finish();
    }

    /// The rank of the tests below, in a separate process.
    #[test]
    #[ignore = "is run by other tests"]
    #[expect(clippy::disallowed_methods, reason = "the test harness takes no arguments of ours")]
    fn rank() {
        let channel = Channel::connect(&std::env::var("RANK_SOCKET").unwrap()).unwrap();
        channel.send(step(1));
        assert_eq!(wait_for_order(&channel), RankCommand::Stop { within_us: None });
        channel.send(Report::Stopped { step: 1 });
        channel.finish();
    }

    fn start_rank(socket: &str) -> Child {
        let name = format!("{}::rank", module_path!().split_once("::").unwrap().1);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &name, "--ignored", "--nocapture"]).env("RANK_SOCKET", socket);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn a_rank_ends_itself_when_its_agent_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let rank = start_rank(path.to_str().unwrap());
        let mut agent = BufReader::new(listener.accept().unwrap().0);
        assert_eq!(read(&mut agent), step(1));
        drop(agent);
        let ended = rank.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(AGENT_GONE));
        assert!(String::from_utf8_lossy(&ended.stderr).contains("the agent is gone"));
    }

    #[test]
    fn signals_are_orders_to_stop() {
        for (signal, with_agent) in [("TERM", true), ("INT", true), ("TERM", false)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("socket");
            let listener = UnixListener::bind(&path).unwrap();
            let mut rank = start_rank(if with_agent { path.to_str().unwrap() } else { "" });
            let mut agent = with_agent.then(|| BufReader::new(listener.accept().unwrap().0));
            let mut stdout = BufReader::new(rank.stdout.take().unwrap());
            // The first report is sent after signals are listened for.
            let mut next = || match &mut agent {
                Some(agent) => read(agent),
                None => loop {
                    let mut line = String::new();
                    assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "the rank ended early");
                    // The test harness prints too, and its first line has no line end.
                    if let Some(Ok(report)) = line.find('{').map(|start| serde_json::from_str(&line[start..])) {
                        return report;
                    }
                },
            };
            assert_eq!(next(), step(1));
            let sent = Command::new("kill").args([format!("-{signal}"), rank.id().to_string()]).status().unwrap();
            assert!(sent.success());
            assert_eq!(next(), Report::Stopped { step: 1 }, "{signal}");
            drop(agent);
            // Further output of the harness must have a reader.
            let _ = io::copy(&mut stdout, &mut io::sink());
            assert_eq!(rank.wait().unwrap().code(), Some(0), "{signal}");
        }
    }
}
