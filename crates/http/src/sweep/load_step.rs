//! One visit to a number of users: the load, and looks at both ends before it, and when the time that counts begins and ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::load::access_pattern::AccessPattern;
use crate::load::request::RequestTemplate;
use crate::load::schedule::{ThinkTime, TimeDistribution};
use crate::load::server_url::ServerUrl;
use crate::load::verify::Verify;
use crate::load::{Demand, LoadSetup, ServerEndpoint, run_load};
use kelvin_core::load::LoadResult;
use kelvin_core::resources::ResourceSnapshot;
use kelvin_machine::resources::ProcessMonitor;

use crate::sweep::error::{Error, Result};
use crate::sweep::stats_client::StatsClient;
use crate::sweep::usage_delta::UsageDelta;
use kelvin_sys::thread_spawn::ThreadBuilder;

/// Time after which an answer is no longer waited for.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it is asked whether this process is to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What a visit brought.
#[derive(Clone, Debug)]
pub(crate) struct StepResult {
    pub load: LoadResult,
    pub server: UsageDelta,
    pub client: UsageDelta,
    /// What it took beside the time that it was to take.
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
    /// A server that cannot be reached or does not tell what it uses; a signal to stop.
    pub fn run(&mut self, spec: StepSpec) -> Result<StepResult> {
        let reached = Instant::now();
        let goes_on = Arc::new(AtomicBool::new(true));
        let mean = spec.think.as_nanos() as f64;
        let setup = LoadSetup {
            target: self.target.clone(),
            paths: self.paths.clone(),
            pattern: spec.pattern,
            template: RequestTemplate::default(),
            demand: Demand::Users {
                users: spec.users as u32,
                think: ThinkTime { mean, distribution: TimeDistribution::Exponential },
            },
            warm_up: spec.warm_up,
            duration: spec.duration,
            timeout: RESPONSE_TIMEOUT,
            seed: spec.seed,
            verify: Verify::Length,
            expected_bodies: vec![None; self.paths.len()],
            tls: None,
            spin: false,
            extension: Some(Arc::clone(&goes_on)),
        };
        let peer = ServerEndpoint::connect_first(&setup)?;
        let planned = spec.warm_up + spec.duration;
        let before = self.sample()?;
        let begun = Instant::now();
        let (load, from, to) = std::thread::scope(|scope| {
            let generator = ThreadBuilder::named("load")
                .start_in(scope, || run_load(&setup, &peer, &mut |_| {}).map_err(Error::from))?;
            let looks = {
                let _under_load = LoadExtension(&goes_on);
                self.sample_at(begun + spec.warm_up).and_then(|from| Ok((from, self.sample_at(begun + planned)?)))
            };
            let load =
                generator.join().unwrap_or_else(|_| Err(Error::Unanswered("the load generator panicked".into())));
            let (load, (from, to)) = (load?, looks?);
            Ok::<_, Error>((load, from, to))
        })?;
        let server = UsageDelta::between([before.server, from.server, to.server]);
        let client = UsageDelta::between([before.client, from.client, to.client]);
        Ok(StepResult { load, server, client, overhead: reached.elapsed().saturating_sub(planned) })
    }

    /// Both ends now.
    fn sample(&mut self) -> Result<EndSamples> {
        Ok(EndSamples { server: self.stats_client.fetch()?, client: self.process.sample().map_err(Error::ReadUsage)? })
    }

    /// Both ends at a time.
    fn sample_at(&mut self, time: Instant) -> Result<EndSamples> {
        while let Some(left) = time.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            if let Some(signal) = kelvin_sys::stop_signals::stop_signal() {
                return Err(Error::Interrupted(signal.into()));
            }
            std::thread::sleep(left.min(STOP_POLL_INTERVAL));
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
