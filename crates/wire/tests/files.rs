//! Servers of files that an agent starts: for whom, how many, and when they end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use kelvin_wire::Error;
use kelvin_wire::agent::{Agent, Event};
use kelvin_wire::client::{Client, shake};
use kelvin_wire::files::{Cache, Design, Host, Rate, RequestRate, Served};
use kelvin_wire::limits::Limits;
use kelvin_wire::message::{Answer, Ask};
use kelvin_wire::secret::Secret;

const RATE: Rate = Rate {
    bytes_per_second: 1e6,
    read_per_second: None,
    requests: Some(RequestRate { per_second: 100.0, bytes: 4096.0 }),
};

const LONG: Duration = Duration::from_secs(10);

fn secret() -> Secret {
    Secret::new(b"an agent of the tests").unwrap()
}

/// A server that is none, and counts how many of it there are.
struct Imagined {
    names: Vec<String>,
    there: Arc<AtomicU32>,
}

impl Host for Imagined {
    fn served(&self) -> Served {
        let (files_port, looks_port, token) = (81, 82, "token".into());
        let files = self.names.len() as u32;
        Served { files_port, looks_port, token, files, bytes: 5, left_out: 2, may_be_cached: Some(9) }
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn disk_rate(&self) -> Result<Rate, String> {
        Ok(RATE)
    }

    fn bring(&self, cache: Cache, from: u32) -> Result<u32, String> {
        if cache == Cache::Cached { Err("they do not fit".into()) } else { Ok(from + 100) }
    }
}

impl Drop for Imagined {
    fn drop(&mut self) {
        self.there.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs an agent that serves so many files, and beside it a function of its address and of how many servers there are.
fn beside(files: Option<usize>, idle: Duration, body: impl FnOnce(SocketAddr, &AtomicU32)) {
    let there = Arc::new(AtomicU32::new(0));
    let limits = Limits { idle, ..Limits::default() };
    let log = Box::new(|_: SocketAddr, _: &Event| {});
    let mut agent = Agent::listen("127.0.0.1:0".parse().unwrap(), secret(), limits, log).unwrap();
    if let Some(files) = files {
        let there = Arc::clone(&there);
        agent = agent.with_files(Box::new(move |design, listen| {
            assert_eq!((listen.ip().to_string().as_str(), listen.port()), ("127.0.0.1", 0));
            if let Some(model) = &design.model {
                return Err(format!("there is no model {model}"));
            }
            there.fetch_add(1, Ordering::SeqCst);
            let names = (0..files).map(|number| format!("file {number}")).collect();
            Ok(Box::new(Imagined { names, there: Arc::clone(&there) }))
        }));
    }
    let (address, is_over) = (agent.address().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let served = scope.spawn(|| agent.serve(|| is_over.load(Ordering::Relaxed)));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(address, &there)));
        is_over.store(true, Ordering::Relaxed);
        served.join().unwrap().unwrap();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn connected(address: SocketAddr) -> Client {
    Client::connect(&[address], &secret()).unwrap()
}

/// Waits until none of them is there.
fn wait_for_none(there: &AtomicU32) {
    let begun = std::time::Instant::now();
    while there.load(Ordering::SeqCst) > 0 {
        assert!(begun.elapsed() < LONG, "it is still there");
        std::thread::yield_now();
    }
}

#[test]
fn a_client_has_files_named_read_and_brought_and_one_server_at_a_time() {
    beside(Some(250), LONG, |address, there| {
        let mut server = connected(address).serve_files(&Design::default()).unwrap();
        assert_eq!(server.addresses().map(|one| one.port()), [81, 82]);
        let names = server.names().unwrap();
        assert_eq!((names.len(), names[249].as_str()), (250, "file 249"));
        assert_eq!(server.disk_rate().unwrap(), RATE);
        server.bring(Cache::Uncached, || true).unwrap();
        assert!(matches!(server.bring(Cache::Uncached, || false), Err(Error::Gone)));
        let refused = server.bring(Cache::Cached, || true).unwrap_err();
        assert_eq!(refused.to_string(), "the agent refused: they do not fit");
        // What cannot be done does not end it.
        server.stay().unwrap();
        assert_eq!(there.load(Ordering::SeqCst), 1);
        let mut client = server.end().unwrap();
        assert_eq!(there.load(Ordering::SeqCst), 0);
        assert_eq!(client.echo_tcp(1).unwrap().finish().unwrap().arrived, 0);
        drop(client.serve_files(&Design::default()).unwrap());
        wait_for_none(there);
    });
}

#[test]
fn a_second_server_of_a_client_is_refused_and_the_first_one_ends() {
    beside(Some(1), LONG, |address, there| {
        let mut channel = shake(std::net::TcpStream::connect(address).unwrap(), &secret(), LONG).unwrap();
        for _ in 0..50 {
            channel.send(&Ask::ServeFiles(Design::default()), LONG).unwrap();
            assert!(matches!(channel.receive(LONG).unwrap(), Answer::Serving(_)));
            assert_eq!(there.load(Ordering::SeqCst), 1);
            channel.send(&Ask::ServeFiles(Design::default()), LONG).unwrap();
            let Answer::Failed { why } = channel.receive(LONG).unwrap() else { panic!("it was not refused") };
            assert_eq!(why, "one test must end before the next one begins");
            assert_eq!(there.load(Ordering::SeqCst), 0);
        }
        for ask in [Ask::Stay, Ask::ReadFromDisk, Ask::Names { from: 0 }] {
            channel.send(&ask, LONG).unwrap();
            let Answer::Failed { why } = channel.receive(LONG).unwrap() else { panic!("it was not refused") };
            assert_eq!(why, "no server of files is running");
        }
    });
}

#[test]
fn the_server_of_a_silent_client_ends() {
    beside(Some(1), Duration::from_millis(50), |address, there| {
        let mut server = connected(address).serve_files(&Design::default()).unwrap();
        wait_for_none(there);
        assert!(server.stay().is_err());
    });
}

#[test]
fn an_agent_without_files_and_one_that_cannot_start_a_server_say_so() {
    let why = |address, design: &Design| connected(address).serve_files(design).unwrap_err().to_string();
    beside(None, LONG, |address, _| {
        let expected = "the agent refused: it serves no files: start it with --serve DIR";
        assert_eq!(why(address, &Design::default()), expected);
    });
    beside(Some(1), LONG, |address, _| {
        let design = Design { model: Some("pigeon".into()), ..Design::default() };
        assert_eq!(why(address, &design), "the agent refused: there is no model pigeon");
        assert!(why(address, &Design { model: Some("m".repeat(17)), ..design }).contains("malformed message"));
    });
    beside(Some(0), LONG, |address, _| {
        assert!(why(address, &Design::default()).contains("0 files, where 1 to 100000 are possible"));
    });
}
