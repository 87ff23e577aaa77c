//! One visit to a number of users: the load, and looks at both ends before it, and when the time that counts begins and ends.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kelvin_core::load::LoadResult;
use kelvin_core::resources::{MAX_SNAPSHOT_BYTES, ResourceSnapshot};
use kelvin_machine::resources::ProcessMonitor;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::load::access_pattern::AccessPattern;
use crate::load::load_share::LoadShare;
use crate::load::request::RequestTemplate;
use crate::load::response_parser::ResponseParser;
use crate::load::schedule::{ThinkTime, TimeDistribution};
use crate::load::server_url::ServerUrl;
use crate::load::start_time::StartTime;
use crate::load::verify::Verify;
use crate::load::{Demand, GeneratorThreads, LoadSetup, ServerEndpoint, run_load};
use crate::serve::stats_endpoint::STATS_PATH;
use crate::sweep::error::{Error, Result};
use crate::sweep::usage_delta::UsageDelta;

/// Maximum time to wait for an answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it is asked whether this process is to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What a visit brought.
#[derive(Clone, Debug)]
pub(crate) struct StepResult {
    pub load: LoadResult,
    pub server: UsageDelta,
    pub client: UsageDelta,
    /// Threads that the load generator has where there are as many users.
    pub max_threads: u32,
    /// What it took more than the time that it was to take.
    pub overhead: Duration,
}

impl StepResult {
    /// Bytes of bodies a second that arrived.
    pub fn bytes_per_second(&self) -> f64 {
        self.load.received as f64 / self.load.seconds.max(f64::MIN_POSITIVE)
    }

    /// Requests a second that were answered in full and right. What has arrived of the others counts in part: in a visit of a slow server
    /// there are few answers, and it matters whether the last one ends just before or just after the visit. Not so where some answers
    /// were wrong, of which nothing counts.
    pub fn throughput(&self) -> f64 {
        let load = &self.load;
        match load.errors.count() == 0 && load.bytes > 0 {
            true => self.bytes_per_second() * load.requests as f64 / load.bytes as f64,
            false => load.rate(),
        }
    }
}

/// Who visits whom.
#[derive(Debug)]
pub(crate) struct StepRunner {
    pub target: ServerUrl,
    /// Paths of the files.
    pub paths: Vec<String>,
    /// The CPUs of the load generator.
    pub cpus: Vec<u32>,
    pub stats_client: StatsClient,
    /// This process.
    pub process: ProcessMonitor,
}

/// What a visit is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepSpec {
    pub users: u64,
    pub think: Duration,
    pub pattern: AccessPattern,
    pub warm_up: Duration,
    pub duration: Duration,
    pub seed: u64,
}

impl StepRunner {
    /// Makes a visit.
    ///
    /// # Errors
    /// A server that cannot be reached or does not report what it uses; a signal to stop.
    pub fn run(&mut self, spec: StepSpec) -> Result<StepResult> {
        let step_start = Instant::now();
        let extension = Arc::new(AtomicBool::new(true));
        let mean = spec.think.as_nanos() as f64;
        let setup = LoadSetup {
            target: self.target.clone(),
            unix_socket: None,
            paths: self.paths.clone(),
            pattern: spec.pattern,
            template: RequestTemplate::default(),
            templates: Vec::new(),
            kinds: Vec::new(),
            demand: Demand::Users {
                users: spec.users as u32,
                think: ThinkTime { mean, distribution: TimeDistribution::Exponential },
            },
            share: LoadShare::WHOLE,
            start: StartTime::Now,
            warm_up: spec.warm_up,
            duration: spec.duration,
            requests: None,
            timeout: RESPONSE_TIMEOUT,
            seed: spec.seed,
            verify: Verify::Length,
            expected_bodies: vec![None; self.paths.len()],
            tls: None,
            http2_streams: None,
            threads: self.threads(spec.users),
            spin: false,
            extension: Some(Arc::clone(&extension)),
        };
        let peer = ServerEndpoint::connect_first(&setup)?;
        let planned_time = spec.warm_up + spec.duration;
        let before = self.sample()?;
        let load_start = Instant::now();
        let (load, (start, end)) = std::thread::scope(|scope| {
            let generator = ThreadBuilder::named("load").start_in(scope, || {
                run_load(&setup, &peer, &mut |_| {}).map(|load| load.result).map_err(Error::from)
            })?;
            let snapshots = {
                let _under_load = LoadExtension(&extension);
                self.sample_at_time(load_start + spec.warm_up)
                    .and_then(|start| Ok((start, self.sample_at_time(load_start + planned_time)?)))
            };
            let load =
                generator.join().unwrap_or_else(|_| Err(Error::Unanswered("the load generator panicked".into())));
            Ok::<_, Error>((load?, snapshots?))
        })?;
        if let Some(signal) = load.interrupted {
            return Err(Error::Interrupted(signal));
        }
        let server = UsageDelta::between([before.server, start.server, end.server]);
        let client = UsageDelta::between([before.client, start.client, end.client]);
        let overhead = step_start.elapsed().saturating_sub(planned_time);
        Ok(StepResult { load, server, client, max_threads: self.cpus.len() as u32, overhead })
    }

    /// A thread on each CPU, and no more than users.
    fn threads(&self, users: u64) -> GeneratorThreads {
        GeneratorThreads::Pinned(self.cpus.iter().copied().take(users as usize).collect())
    }

    /// Both ends now.
    fn sample(&mut self) -> Result<EndSamples> {
        Ok(EndSamples { server: self.stats_client.fetch()?, client: self.process.sample().map_err(Error::ReadUsage)? })
    }

    /// Both ends at a time.
    fn sample_at_time(&mut self, time: Instant) -> Result<EndSamples> {
        while let Some(remaining) = time.checked_duration_since(Instant::now()).filter(|remaining| !remaining.is_zero())
        {
            if let Some(signal) = kelvin_sys::stop_signals::stop_signal() {
                return Err(Error::Interrupted(signal.into()));
            }
            std::thread::sleep(remaining.min(STOP_POLL_INTERVAL));
        }
        self.sample()
    }
}

/// A look at each end.
struct EndSamples {
    server: ResourceSnapshot,
    client: ResourceSnapshot,
}

/// Has the users go on until it is dropped. Were they gone when both ends are looked at for the last time, the server would have gone on
/// without them: those that had waited would have their turns, and what was on its way would have arrived.
struct LoadExtension<'v>(&'v AtomicBool);

impl Drop for LoadExtension<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Time in which a server answers.
const STATS_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of its head.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Where a server reports what it uses, to a client with the token.
#[derive(Clone, Debug)]
pub(crate) struct StatsClient {
    pub address: SocketAddr,
    pub token: String,
}

impl StatsClient {
    /// What the server has used until now.
    ///
    /// # Errors
    /// A server that does not answer, or something else than a look.
    pub fn fetch(&self) -> Result<ResourceSnapshot> {
        let resource_error = |reason: String| Error::Resources(self.address, reason);
        let answer = self.query().map_err(|error| resource_error(error.to_string()))?;
        let body = response_body(&answer).map_err(resource_error)?;
        ResourceSnapshot::from_json(&body)
            .map_err(|error| resource_error(format!("it is no snapshot of resources: {error}")))
    }

    fn query(&self) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&self.address, STATS_TIMEOUT)?;
        stream.set_read_timeout(Some(STATS_TIMEOUT))?;
        stream.set_write_timeout(Some(STATS_TIMEOUT))?;
        // Without the zone of an address of one link, which means nothing to the server (RFC 6874, section 4).
        let host = SocketAddr::new(self.address.ip(), self.address.port());
        let token = &self.token;
        let request = format!(
            "GET {STATS_PATH} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take((MAX_HEAD_BYTES + MAX_SNAPSHOT_BYTES) as u64).read_to_end(&mut answer)?;
        Ok(answer)
    }
}

/// The body of a good answer.
fn response_body(answer: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let (mut parser, mut body) = (ResponseParser::new(false), Vec::new());
    let result = parser.feed(answer, &mut |bytes| body.extend_from_slice(bytes));
    let is_complete = result.map_err(|error| format!("its answer is {error}"))?.is_some() || parser.finish().is_ok();
    match parser.answer.status {
        200 if is_complete => Ok(body),
        0 | 200 => Err("its answer is not whole".into()),
        status => Err(format!("it answers {status}")),
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::load::{NetworkSetup, Resource, UTILISATION};
    use kelvin_core::{MetricReadings, Readings};
    use kelvin_transfer::wire::secret::Secret;

    use super::*;
    use crate::serve::stats_endpoint::StatsAccess;
    use crate::serve::{Server, ServerAccess, ServerSetup};
    use crate::sweep::capacity::Capacities;
    use crate::sweep::readings::resource_readings;

    const FILE_BYTES: usize = 1000;

    /// What the client of a server with one file does, on these CPUs.
    fn with_runner(cpus: Vec<u32>, work: impl FnOnce(&mut StepRunner)) {
        let (root, any_port) = (tempfile::tempdir().unwrap(), SocketAddr::from(([127, 0, 0, 1], 0)));
        std::fs::write(root.path().join("file"), [7; FILE_BYTES]).unwrap();
        let token = "a token of some length".to_owned();
        let access = StatsAccess { address: any_port, token: Secret::new(token.as_bytes()).unwrap() };
        let access = ServerAccess { stats_access: Some(access), ..ServerAccess::default() };
        let server = Server::listen(any_port, root.path(), ServerSetup::with_threads(2), access).unwrap();
        let (address, is_serving) = (server.stats_address().unwrap().unwrap(), &AtomicBool::new(true));
        let mut runner = StepRunner {
            target: format!("http://{}/", server.address().unwrap()).parse().unwrap(),
            paths: vec!["/file".to_owned()],
            cpus,
            stats_client: StatsClient { address, token },
            process: ProcessMonitor::current(None).without_descendants(),
        };
        std::thread::scope(|scope| {
            scope.spawn(move || server.serve(|| !is_serving.load(Ordering::Relaxed)).unwrap());
            let _end = LoadExtension(is_serving);
            work(&mut runner);
        });
    }

    #[test]
    fn step_counts_the_busiest_of_its_threads() {
        let cpu = *kelvin_sys::cpu::affinity().unwrap().last().unwrap();
        with_runner(vec![cpu; 3], |runner| {
            for (users, threads) in [(1, 1), (2, 2), (3, 3), (7, 3)] {
                let spec = StepSpec {
                    users,
                    think: Duration::ZERO,
                    pattern: AccessPattern::Fixed,
                    warm_up: Duration::from_millis(50),
                    duration: Duration::from_millis(300),
                    seed: users,
                };
                let step = runner.run(spec).unwrap();
                let load = &step.load;
                let generator = &load.generator;
                assert_eq!((generator.threads.len(), step.max_threads), (threads, 3), "{load:?}");
                assert_eq!((load.connections, load.errors.count()), (users, 0), "{load:?}");
                // One that does nothing in all of the time has no CPU time; and no capacity follows from none.
                let Some(cpu_seconds) = generator.cpu.filter(|_| load.requests > 0) else { continue };
                let capacities = Capacities::from_measured(&step, None, FILE_BYTES as f64, NetworkSetup::Loopback);
                let capacity = capacities.get(Resource::Generator).unwrap();
                let expected = 3.0 * load.requests as f64 / cpu_seconds;
                assert!((capacity.requests.unwrap() / expected - 1.0).abs() < 1e-9, "{capacity:?} {expected}");
                assert_eq!(capacity.servers, 3.0);
                let readings = resource_readings(&step, &capacities);
                let (_, readings) = readings.iter().find(|(resource, _)| *resource == Resource::Generator).unwrap();
                let busy = generator.threads.iter().filter_map(|thread| thread.busy).reduce(f64::max).unwrap();
                let [MetricReadings { metric, readings: Readings::Scalars(values), .. }] = &readings[..] else {
                    panic!("{readings:?}")
                };
                assert_eq!((metric, &values[..]), (&UTILISATION.id, &[busy][..]));
            }
        });
    }

    #[test]
    fn only_successful_body_is_used() {
        assert_eq!(response_body(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), Ok(b"{}".to_vec()));
        assert_eq!(response_body(b"HTTP/1.1 401 Unauthorized\r\n\r\nno"), Err("it answers 401".into()));
        assert_eq!(response_body(b"HTTP/1.1 200 OK\r\nContent-"), Err("its answer is not whole".into()));
        assert!(response_body(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap_err().starts_with("its answer is no HTTP response"));
    }

    #[test]
    fn threads_have_a_user_and_a_cpu_each() {
        let runner = StepRunner {
            target: "http://localhost/".parse().unwrap(),
            paths: Vec::new(),
            cpus: vec![7, 5, 6],
            stats_client: StatsClient { address: ([127, 0, 0, 1], 1).into(), token: String::new() },
            process: ProcessMonitor::current(None),
        };
        let threads = [1, 2, 3, 1000].map(|users| runner.threads(users));
        let expected = [&[7][..], &[7, 5], &[7, 5, 6], &[7, 5, 6]].map(|cpus| GeneratorThreads::Pinned(cpus.to_vec()));
        assert_eq!(threads, expected);
    }

    #[test]
    fn silent_server_is_named() {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = StatsClient { address, token: "secret".into() }.fetch().unwrap_err().to_string();
        assert!(error.starts_with(&format!("the server at {address} does not report its resource use: ")), "{error}");
        assert!(!error.contains("secret"));
    }
}
