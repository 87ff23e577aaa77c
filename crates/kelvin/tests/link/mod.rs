//! Two hosts that are network namespaces, and the link between them.
//!
//! No test needs all of it.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelvin_stats::Random;
use kelvin_sys::net::tap::Tap;
use kelvin_sys::poll::wait_readable;
use kelvin_testing::MissingRequirement;

use crate::test_dir::{KELVIN, TestDir, stderr};

/// Two hosts: network namespaces, and a pair of virtual interfaces between them.
pub struct Link {
    pub near: String,
    pub far: String,
    /// What delays all frames, if something does.
    relay: Option<Relay>,
}

impl Link {
    /// Address of the far one.
    pub const FAR_ADDRESS: &str = "198.18.79.2";

    /// Makes them.
    pub fn new() -> Result<Self, MissingRequirement> {
        let link = Self::hosts_only()?;
        let Self { near, far, .. } = &link;
        ip(&format!("link add one netns {near} type veth peer name other netns {far}"))?;
        link.up()?;
        Ok(link)
    }

    /// Like `new`, where each frame takes so long.
    pub fn with_delay(by: Duration) -> Result<Self, MissingRequirement> {
        Self::with_impairments([Impairment { delay: by, loss: 0.0, reordering: 0.0 }; 2])
    }

    /// Like `with_delay`, where what the near one and the far one send goes these ways.
    pub fn with_impairments(ways: [Impairment; 2]) -> Result<Self, MissingRequirement> {
        let mut link = Self::hosts_only()?;
        let tap = |which: &str| {
            let name = format!("k{which}{}", link.near.trim_start_matches("kelvin-near"));
            let tap = Tap::new(&name)
                .map_err(|error| MissingRequirement::privilege(format!("a tap interface (root may): {error}")))?;
            Ok((name, Arc::new(tap)))
        };
        let ((one, near), (other, far)) = (tap("n")?, tap("f")?);
        ip(&format!("link set {one} netns {} name one", link.near))?;
        ip(&format!("link set {other} netns {} name other", link.far))?;
        for (host, device) in [(&link.near, "one"), (&link.far, "other")] {
            ip(&format!("-netns {host} link set {device} txqueuelen 10000"))?;
        }
        link.relay = Some(Relay::start([near, far], ways));
        link.up()?;
        Ok(link)
    }

    /// The hosts alone.
    fn hosts_only() -> Result<Self, MissingRequirement> {
        static LINK_COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), LINK_COUNT.fetch_add(1, Ordering::Relaxed));
        let link = Self { near: format!("kelvin-near{id}"), far: format!("kelvin-far{id}"), relay: None };
        ip(&format!("netns add {}", link.near))?;
        ip(&format!("netns add {}", link.far))?;
        Ok(link)
    }

    fn up(&self) -> Result<(), MissingRequirement> {
        let Self { near, far, .. } = self;
        ip(&format!("-netns {near} address add 198.18.79.1/30 dev one"))?;
        ip(&format!("-netns {far} address add {}/30 dev other", Self::FAR_ADDRESS))?;
        ip(&format!("-netns {far} link set other up"))?;
        self.set("up")
    }

    /// Cuts it, or joins it again.
    pub fn set(&self, state: &str) -> Result<(), MissingRequirement> {
        ip(&format!("-netns {} link set one {state}", self.near))
    }

    /// Limits what the far one sends.
    pub fn limit(&self, rate: &str) -> Result<(), MissingRequirement> {
        let line = format!("qdisc replace dev other root tbf rate {rate} burst 128kb latency 50ms");
        run_tool("tc", &format!("-netns {} {line}", self.far))
    }

    /// Limits what the near one sends, with a queue that no sender of a few streams fills.
    pub fn limit_near(&self, rate: &str) -> Result<(), MissingRequirement> {
        let line = format!("qdisc add dev one root tbf rate {rate} burst 128kb latency 100ms");
        run_tool("tc", &format!("-netns {} {line}", self.near))
    }

    /// Limits the buffers of sockets on both, and so what a connection has in flight.
    pub fn limit_buffers(&self, bytes: u32) -> Result<(), MissingRequirement> {
        for host in [&self.near, &self.far] {
            Self::limit_buffer(host, "tcp_wmem", bytes)?;
            Self::limit_buffer(host, "tcp_rmem", bytes)?;
        }
        Ok(())
    }

    /// Limits one kind of buffers of the sockets on one of them.
    pub fn limit_buffer(host: &str, which: &str, bytes: u32) -> Result<(), MissingRequirement> {
        let sizes = format!("net.ipv4.{which}=4096 {} {bytes}", bytes / 2);
        check_success("ip", &["netns", "exec", host, "sysctl", "-q", "-w", &sizes])
    }

    /// The program on one of them.
    pub fn kelvin(place: &TestDir, host: &str, arguments: &[&str]) -> Command {
        place.command("ip", &[&["netns", "exec", host, KELVIN], arguments].concat())
    }
}

/// What happens to frames that go one way.
#[derive(Clone, Copy)]
pub struct Impairment {
    /// What each takes.
    pub delay: Duration,
    /// Share of them that is lost.
    pub loss: f64,
    /// Share that comes twice, and the same share that comes after later ones.
    pub reordering: f64,
}

/// Threads that pass frames on, each after a while.
struct Relay {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    fn start([near, far]: [Arc<Tap>; 2], [there, back]: [Impairment; 2]) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let threads = [(&near, &far, there), (&far, &near, back)].map(|(from, to, way)| {
            let (from, to, is_over) = (Arc::clone(from), Arc::clone(to), Arc::clone(&is_over));
            std::thread::spawn(move || forward_frames(&from, &to, (way, &is_over)))
        });
        Self { is_over, threads: threads.into() }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that has failed has lost frames, which a test sees.
            let _ = thread.join();
        }
    }
}

/// Passes frames on until it is over, each after a while.
fn forward_frames(from: &Tap, to: &Tap, (way, is_over): (Impairment, &AtomicBool)) {
    const POLL_INTERVAL: Duration = Duration::from_millis(20);
    /// By which one is late that comes after later ones: more than the kernel waits for it.
    const REORDER_DELAY: Duration = Duration::from_millis(40);
    let mut random = Random::new(1);
    let (mut held, mut frame) = (VecDeque::<(Instant, Vec<u8>)>::new(), [0; 2048]);
    while !is_over.load(Ordering::Relaxed) {
        let wait = held.front().map_or(POLL_INTERVAL, |(due, _)| due.saturating_duration_since(Instant::now()));
        if wait_readable(from.as_fd(), wait).unwrap() {
            let length = from.receive(&mut frame).unwrap();
            let (lost, trouble) = (random.uniform(), random.uniform());
            let is_late = (way.reordering..2.0 * way.reordering).contains(&trouble);
            let due = Instant::now() + way.delay + if is_late { REORDER_DELAY } else { Duration::ZERO };
            let copies = if lost < way.loss { 0 } else { 1 + usize::from(trouble < way.reordering) };
            for _ in 0..copies {
                let place = held.partition_point(|(other, _)| *other <= due);
                held.insert(place, (due, frame[..length].to_vec()));
            }
        }
        while let Some((_, frame)) = held.pop_front_if(|(due, _)| *due <= Instant::now()) {
            // An interface that is down takes none.
            let _ = to.send(&frame);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // It reads from interfaces that go with the hosts.
        drop(self.relay.take());
        for host in [&self.near, &self.far] {
            let _ = Command::new("ip").args(["netns", "delete", host]).status();
        }
    }
}

fn ip(line: &str) -> Result<(), MissingRequirement> {
    run_tool("ip", line)
}

fn run_tool(program: &str, line: &str) -> Result<(), MissingRequirement> {
    check_success(program, &line.split(' ').collect::<Vec<_>>())
}

fn check_success(program: &str, arguments: &[&str]) -> Result<(), MissingRequirement> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| MissingRequirement::program(program, "iproute2", &error))?;
    if output.status.success() {
        return Ok(());
    }
    Err(MissingRequirement::privilege(format!("{program} {} (root may): {}", arguments.join(" "), stderr(&output))))
}
