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
    pub near_host: String,
    pub far_host: String,
    /// What delays all frames, if something does.
    relay: Option<Relay>,
}

impl Link {
    /// Address of the far host.
    pub const FAR_ADDRESS: &str = "198.18.79.2";

    /// Makes them.
    pub fn new() -> Result<Self, MissingRequirement> {
        let link = Self::hosts_only()?;
        let Self { near_host, far_host, .. } = &link;
        ip(&format!("link add one netns {near_host} type veth peer name other netns {far_host}"))?;
        link.bring_up()?;
        Ok(link)
    }

    /// Like `new`, where each frame takes so long.
    pub fn with_delay(delay: Duration) -> Result<Self, MissingRequirement> {
        Self::with_impairments([Impairment { delay, loss: 0.0, reordering: 0.0 }; 2])
    }

    /// Like `with_delay`, with an impairment of what each host sends.
    pub fn with_impairments(impairments: [Impairment; 2]) -> Result<Self, MissingRequirement> {
        let mut link = Self::hosts_only()?;
        let tap = |side: &str| {
            let name = format!("k{side}{}", link.near_host.trim_start_matches("kelvin-near"));
            let tap = Tap::new(&name)
                .map_err(|error| MissingRequirement::privilege(format!("a tap interface (root may): {error}")))?;
            Ok((name, Arc::new(tap)))
        };
        let ((near_name, near_tap), (far_name, far_tap)) = (tap("n")?, tap("f")?);
        ip(&format!("link set {near_name} netns {} name one", link.near_host))?;
        ip(&format!("link set {far_name} netns {} name other", link.far_host))?;
        for (host, device) in [(&link.near_host, "one"), (&link.far_host, "other")] {
            ip(&format!("-netns {host} link set {device} txqueuelen 10000"))?;
        }
        link.relay = Some(Relay::start([near_tap, far_tap], impairments));
        link.bring_up()?;
        Ok(link)
    }

    /// The hosts alone.
    fn hosts_only() -> Result<Self, MissingRequirement> {
        static LINK_COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), LINK_COUNT.fetch_add(1, Ordering::Relaxed));
        let link = Self { near_host: format!("kelvin-near{id}"), far_host: format!("kelvin-far{id}"), relay: None };
        ip(&format!("netns add {}", link.near_host))?;
        ip(&format!("netns add {}", link.far_host))?;
        Ok(link)
    }

    fn bring_up(&self) -> Result<(), MissingRequirement> {
        let Self { near_host, far_host, .. } = self;
        ip(&format!("-netns {near_host} address add 198.18.79.1/30 dev one"))?;
        ip(&format!("-netns {far_host} address add {}/30 dev other", Self::FAR_ADDRESS))?;
        ip(&format!("-netns {far_host} link set other up"))?;
        self.set("up")
    }

    /// Cuts it, or joins it again.
    pub fn set(&self, state: &str) -> Result<(), MissingRequirement> {
        ip(&format!("-netns {} link set one {state}", self.near_host))
    }

    /// Limits what the far host sends.
    pub fn limit(&self, rate: &str) -> Result<(), MissingRequirement> {
        let line = format!("qdisc replace dev other root tbf rate {rate} burst 128kb latency 50ms");
        run_tool("tc", &format!("-netns {} {line}", self.far_host))
    }

    /// Limits what the near host sends, with a queue that no sender of a few streams fills.
    pub fn limit_near(&self, rate: &str) -> Result<(), MissingRequirement> {
        let line = format!("qdisc add dev one root tbf rate {rate} burst 128kb latency 100ms");
        run_tool("tc", &format!("-netns {} {line}", self.near_host))
    }

    /// Limits the buffers of sockets on both, and so what a connection has in flight.
    pub fn limit_buffers(&self, bytes: u32) -> Result<(), MissingRequirement> {
        for host in [&self.near_host, &self.far_host] {
            Self::limit_buffer(host, "tcp_wmem", bytes)?;
            Self::limit_buffer(host, "tcp_rmem", bytes)?;
        }
        Ok(())
    }

    /// Limits one kind of buffers of the sockets on one of them.
    pub fn limit_buffer(host: &str, sysctl: &str, bytes: u32) -> Result<(), MissingRequirement> {
        let sizes = format!("net.ipv4.{sysctl}=4096 {} {bytes}", bytes / 2);
        check_success("ip", &["netns", "exec", host, "sysctl", "-q", "-w", &sizes])
    }

    /// The program on one of them.
    pub fn kelvin(dir: &TestDir, host: &str, arguments: &[&str]) -> Command {
        dir.command("ip", &[&["netns", "exec", host, KELVIN], arguments].concat())
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
    fn start([near_tap, far_tap]: [Arc<Tap>; 2], [forward, reverse]: [Impairment; 2]) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let threads = [(&near_tap, &far_tap, forward), (&far_tap, &near_tap, reverse)].map(|(from, to, impairment)| {
            let (from, to, is_over) = (Arc::clone(from), Arc::clone(to), Arc::clone(&is_over));
            std::thread::spawn(move || forward_frames(&from, &to, (impairment, &is_over)))
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
fn forward_frames(from: &Tap, to: &Tap, (impairment, is_over): (Impairment, &AtomicBool)) {
    const POLL_INTERVAL: Duration = Duration::from_millis(20);
    /// By which one is late that comes after later ones: more than the kernel waits for it.
    const REORDER_DELAY: Duration = Duration::from_millis(40);
    let mut random = Random::new(1);
    let (mut queue, mut frame) = (VecDeque::<(Instant, Vec<u8>)>::new(), [0; 2048]);
    while !is_over.load(Ordering::Relaxed) {
        let wait =
            queue.front().map_or(POLL_INTERVAL, |(due_time, _)| due_time.saturating_duration_since(Instant::now()));
        if wait_readable(from.as_fd(), wait).unwrap() {
            let length = from.receive(&mut frame).unwrap();
            let (loss_draw, reorder_draw) = (random.uniform(), random.uniform());
            let is_late = (impairment.reordering..2.0 * impairment.reordering).contains(&reorder_draw);
            let due_time = Instant::now() + impairment.delay + if is_late { REORDER_DELAY } else { Duration::ZERO };
            let copies =
                if loss_draw < impairment.loss { 0 } else { 1 + usize::from(reorder_draw < impairment.reordering) };
            for _ in 0..copies {
                let index = queue.partition_point(|(queued_time, _)| *queued_time <= due_time);
                queue.insert(index, (due_time, frame[..length].to_vec()));
            }
        }
        while queue.front().is_some_and(|(due_time, _)| *due_time <= Instant::now()) {
            // An interface that is down takes none.
            let _ = queue.pop_front().map(|(_, frame)| to.send(&frame));
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // It reads from interfaces that go with the hosts.
        drop(self.relay.take());
        for host in [&self.near_host, &self.far_host] {
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
