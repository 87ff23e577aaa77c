//! Killed at any instant, the store opens again with every round that was acknowledged.

mod common;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{sample_header, sample_round};
use kelvin_core::{Case, Event, Name, RoundOutcome};
use kelvin_store::{FindError, LoadError, Store};

/// Names the store to the child, and makes this binary one.
const CHILD: &str = "KELVIN_STORE_CRASH_TEST_CHILD";

/// The child's acknowledgement of one stored event. libtest writes no such byte.
const ACK_BYTE: u8 = 0x06;

fn event(index: u32) -> Event {
    let case = Case::new().with_word(kelvin_core::AxisWord::from_names("call", "getppid"));
    Event::RoundFinished { probe: Name::new("os.syscall.null"), case, round: Box::new(sample_round(index)) }
}

/// Not a test of its own: what the killed child does.
#[test]
fn child() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = Store::open(Path::new(&path)).unwrap();
    let mut recorder = store.recorder();
    let mut out = std::io::stdout();
    let mut acknowledge = || out.write_all(&[ACK_BYTE]).and_then(|()| out.flush()).unwrap();
    recorder.event(&Event::Started(Box::new(sample_header("killed")))).unwrap();
    acknowledge();
    for index in 0.. {
        recorder.event(&event(index)).unwrap();
        acknowledge();
    }
}

/// When to kill the child.
#[derive(Clone, Copy, Debug)]
struct KillTime {
    /// Once it has acknowledged this many events,
    acknowledged: usize,
    /// and then so much later.
    delay: Duration,
}

impl KillTime {
    /// Any instant from before the file exists to some tens of rounds.
    fn random() -> Self {
        let random = RandomState::new().build_hasher().finish();
        let acknowledged = (random % 40) as usize;
        // Before the first acknowledgement lie opening and migration, which take longer than a round.
        let max_delay = if acknowledged == 0 { 30_000 } else { 3_000 };
        Self { acknowledged, delay: Duration::from_micros((random >> 32) % max_delay) }
    }
}

/// Starts the child, kills it at this instant, and counts what it acknowledged in the end.
fn run_and_kill(path: &Path, instant: KillTime) -> usize {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut acknowledged = 0;
    let mut buffer = [0; 256];
    while acknowledged < instant.acknowledged {
        let read = out.read(&mut buffer).unwrap();
        assert!(read > 0, "the child ended on its own");
        acknowledged += count_acks(&buffer[..read]);
    }
    thread::sleep(instant.delay);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    acknowledged + count_acks(&rest)
}

fn count_acks(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte == ACK_BYTE).count()
}

#[test]
fn every_acknowledged_round_survives_sigkill() {
    let mut runs_with_rounds = 0;
    for attempt in 0..30 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.sqlite");
        let instant = KillTime::random();
        let acknowledged = run_and_kill(&path, instant);
        let store = Store::open(&path).unwrap();
        let stored_events = match store.load("last") {
            Ok(run) => {
                let rounds = &run.measurements[0].rounds;
                for (index, round) in rounds.iter().enumerate() {
                    assert_eq!(*round, sample_round(u32::try_from(index).unwrap()), "attempt {attempt}");
                    assert!(matches!(round.outcome, RoundOutcome::Measured(_)));
                }
                runs_with_rounds += usize::from(!rounds.is_empty());
                1 + rounds.len()
            }
            Err(LoadError::Find(FindError::Empty { .. })) => 0,
            Err(error) => panic!("attempt {attempt}, killed at {instant:?}: {error}"),
        };
        // One more than acknowledged: stored, and killed before the acknowledgement.
        assert!(
            (acknowledged..=acknowledged + 1).contains(&stored_events),
            "attempt {attempt}: {acknowledged} acknowledged, {stored_events} stored"
        );
        // And it can be recorded into again.
        store.recorder().event(&Event::Started(Box::new(sample_header("next")))).unwrap();
    }
    assert!(runs_with_rounds >= 5, "only {runs_with_rounds} of 30 children got as far as a round");
}
