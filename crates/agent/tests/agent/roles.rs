//! The roles of this test program when another test starts it as `gradus agent` or as `gradus-rank`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::{AgentSettings, Patience};
use domain::finding::{Cause, Finding};
use program::{LoggedStep, ProgramRun, ProgramSettings, StateView, TensorView};

use domain::rank::{Checkpointed, Environment, Exported, Fetching, Pause, RankCommand, Ready, Report, Spec, Step};

/// Supervises the folder named by the environment, and exits like `gradus agent`.
pub fn agent(folder: PathBuf, patience: &str) -> ! {
    let mut all = Patience::default();
    for (name, milliseconds) in patience.split(',').filter_map(|pair| pair.split_once(':')) {
        let value = Duration::from_millis(milliseconds.parse().unwrap());
        match name {
            "first_answer" => all.first_answer = value,
            "call" => all.call = value,
            "save" => all.save = value,
            "program" => all.program = value,
            "step" => all.step = value,
            "node_lost" => all.node_lost = value,
            "devices" => all.devices = value,
            other => panic!("no patience is named `{other}`"),
        }
    }
    // `~` is beside the home, as a user's own folder is.
    let user_home = folder.ancestors().nth(3).map(|above| above.join("user"));
    let access = store::Access::default();
    let departure = agent::attend_with(AgentSettings { folder, user_home, access, metadata: None }, all).unwrap();
    println!("left: {departure:?}");
    std::process::exit(departure.exit_code().into());
}

/// Simulates training as `GRADUS_TEST_RANK` specifies: a number of steps, or a fault.
pub fn rank(spec: &str, behaviour: &str) -> ! {
    let spec: Spec = serde_json::from_str(&std::fs::read_to_string(spec).unwrap()).unwrap();
    println!("rank of {} with {} threads", spec.attempt, std::env::var("OMP_NUM_THREADS").unwrap());
    for name in ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"] {
        println!("{name}={}", std::env::var(name).unwrap());
    }
    if spec.world_size > 1 {
        let value = |name: &str| std::env::var(name).unwrap();
        assert_eq!((value("RANK"), value("WORLD_SIZE")), (spec.rank.to_string(), spec.world_size.to_string()));
        let meeting = spec.meeting.as_ref().unwrap();
        assert_eq!((value("MASTER_ADDR"), value("MASTER_PORT")), (meeting.host.clone(), meeting.port.to_string()));
        println!("rank {} of {} meets at {}", spec.rank, spec.world_size, meeting.port);
    }
    if behaviour == "mute" {
        eprintln!("cannot go on");
        std::process::exit(3);
    }
    let stream = UnixStream::connect(&spec.socket).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let said = Arc::new(Mutex::new(stream.try_clone().unwrap()));
    let (ordered, deaf) = (stop.clone(), behaviour == "deaf");
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            match serde_json::from_str(&line).unwrap() {
                RankCommand::Stop { within_us } => {
                    println!("asked to stop within {within_us:?}");
                    ordered.store(true, Ordering::SeqCst);
                }
                RankCommand::Checkpoint => {}
            }
        }
        // The agent is gone. A rank that does not listen is ended by the kernel.
        if !deaf {
            std::process::exit(9);
        }
    });
    let say = |report: Report| {
        let mut line = serde_json::to_string(&report).unwrap();
        line.push('\n');
        let sent = said.lock().unwrap().write_all(line.as_bytes());
        assert!(sent.is_ok() || deaf, "{sent:?}");
    };
    say(Report::Hello { rank: 0, pid: std::process::id(), environment: Environment::default() });
    let ready = Ready {
        step: 0,
        steps: 1000,
        steps_per_epoch: 1000,
        samples: [8000, 10, 10],
        classes: vec![],
        parameters: 1,
        passed_over: vec![],
        sample: None,
        data: None,
    };
    if behaviour == "the second fails" {
        // The first does not end before the second has reported its error.
        let mark = std::path::Path::new(&spec.export).join("failed");
        let finding = if spec.rank == 1 {
            Finding::new(Cause::Data, "a picture is no picture")
        } else {
            while !mark.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            Finding::new(Cause::RankLost, "rank 1 ended or stands still")
        };
        say(Report::Failed(finding));
        std::fs::write(&mark, "").unwrap();
        std::process::exit(1);
    }
    say(Report::Ready(ready));
    let steps: u64 = if behaviour == "fetch" { 6 } else { behaviour.parse().unwrap_or(u64::MAX) };
    for step in 1..=steps {
        std::thread::sleep(Duration::from_millis(5));
        let (step_us, data) = (5000, Fetching::default());
        let report =
            Step { step, epoch: 0, loss: 1.0, lr: 0.1, samples: 8, step_us, data_wait_us: 0, checkpoint_us: 0, data };
        say(Report::Step(report));
        if behaviour == "fetch" && step == 3 {
            fetch(&spec.data);
        }
        if behaviour == "hang" && step == 3 {
            std::thread::sleep(Duration::from_secs(3600));
        }
        if behaviour == "abort" && step == 3 {
            std::process::abort();
        }
        let is_retired = behaviour == "retired" && step == 3;
        if is_retired || (behaviour != "deaf" && stop.load(Ordering::SeqCst)) {
            say(Report::Pausing { pause: Pause::Checkpoint });
            say(Report::Checkpointed(Checkpointed { step, bytes: 1, stall_us: 1, commit_us: 1 }));
            say(Report::Stopped { step });
            std::process::exit(0);
        }
    }
    let exported = Exported {
        model: format!("{}/model.safetensors", spec.export),
        model_sha256: "00".into(),
        bytes: 1,
        step: steps,
        validation_accuracy: 0.9,
        test_accuracy: 0.9,
        steps,
        peak_memory: 0,
        rank_memory: Vec::new(),
        processor_us: 0,
        figures: Box::default(),
        validation_loss: None,
        validation_figures: Box::default(),
        confusion: Vec::new(),
    };
    say(Report::Exported(exported));
    say(Report::Trained);
    std::process::exit(0);
}

/// Trains with gradus like a user's program: a number of steps, or until it is told to stop, or a fault.
pub fn program(behaviour: &str) -> ! {
    let value = |name: &str| std::env::var(name).unwrap();
    let settings = ProgramSettings {
        run: value("GRADUS_RUN"),
        attempt: value("GRADUS_ATTEMPT_NUMBER").parse().unwrap(),
        rank: 0,
        world: 1,
        ranks_here: 1,
        checkpoints: Some(value("GRADUS_CHECKPOINTS").into()),
        socket: std::env::var_os("GRADUS_SOCKET").map(PathBuf::from),
        program: String::new(),
        keep: 2,
        every: "5 steps".parse().unwrap(),
        mtbf: domain::Duration::from_secs(3600),
        hang_after_s: (behaviour == "hang").then_some(1),
        steps: 0,
        environment: Environment::default(),
    };
    let mut run = ProgramRun::begin(settings).unwrap();
    assert!(run.is_attended());
    let from = run.load().unwrap().map_or(0, |found| found.step);
    println!("from step {from}, with {} dollars in {} s", value("GRADUS_BUDGET"), value("GRADUS_DEADLINE"));
    let steps: u64 = behaviour.parse().unwrap_or(u64::MAX);
    for step in from + 1..=steps {
        std::thread::sleep(Duration::from_millis(2));
        run.log(LoggedStep { step, loss: Some(1.0), ..LoggedStep::default() }).unwrap();
        if behaviour == "hang" && step == 3 {
            std::thread::sleep(Duration::from_secs(3600));
        }
        if behaviour == "quotes" && step == 3 {
            run.fail(&format!("ValueError: 401 with {}\nhint: renew {0}", value("TOKEN")));
            run.finish().unwrap();
            std::process::exit(1);
        }
        if run.should_save(step).unwrap().0 {
            let tensor = TensorView {
                name: "weight".into(),
                dtype: checkpoint::Dtype::I64,
                shape: vec![],
                bytes: &step.to_le_bytes(),
                is_of_model: true,
            };
            let tree = serde_json::json!({"step": step});
            let began = std::time::Instant::now();
            run.save(StateView { step, began, tensors: vec![tensor], tree, generators: None }).unwrap();
        }
        if run.should_stop() {
            break;
        }
    }
    if behaviour == "fails" {
        // Longer than its shell lives, and than the agent waits for reports.
        std::thread::sleep(Duration::from_millis(1500));
        run.fail("TypeError: `f` is a function\nhint: leave it out");
    }
    run.finish().unwrap();
    if behaviour == "fails" {
        // A program takes a while to end.
        std::thread::sleep(Duration::from_millis(200));
        std::process::exit(1);
    }
    std::process::exit(0);
}

/// Reads some bytes of a file that is remote, as a loader does.
fn fetch(path: &str) {
    let listing = std::path::Path::new(path).with_file_name(".gradus").join("elsewhere.json");
    let listing: data::remote::RemoteListing = serde_json::from_slice(&std::fs::read(listing).unwrap()).unwrap();
    let mut stream = UnixStream::connect(&listing.socket).unwrap();
    let span = data::remote::ByteRange { file: 0, offset: 512, bytes: 100 };
    let request = data::remote::RangeRequest::Read(span, data::remote::AccessTime::ONCE);
    data::remote::write_request(&mut stream, &request).unwrap();
    let mut bytes = [0; 100];
    assert_eq!(data::remote::read_answer(&mut stream, &mut bytes).unwrap(), Ok(false));
    assert_eq!(bytes, [7; 100]);
}
