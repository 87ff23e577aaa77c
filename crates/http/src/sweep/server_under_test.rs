//! Where a study visits: a server with its files, and what a few users get of it before the first visit.

use std::path::PathBuf;
use std::time::Duration;

use crate::load::access_pattern::AccessPattern;
use kelvin_core::catalogue::file::CacheState;
use kelvin_core::catalogue::load::{NetworkSetup, RequestPattern};
use kelvin_core::load::LoadResult;
use kelvin_core::units::seconds;
use kelvin_file::cache::PageCacheState;
use kelvin_file::cgroup::Cgroup;
use kelvin_machine::resources::ProcessMonitor;
use kelvin_transfer::wire::file_server::DiskRateReport;

use crate::sweep::error::{Error, Result};
use crate::sweep::file_set::FileList;
use crate::sweep::load_step::{StatsClient, StepResult, StepRunner, StepSpec};
use crate::sweep::readings::StudyConditions;
use crate::sweep::setup::{ExistingServer, KnownFiles, OwnServer, SweepLoad};
use crate::sweep::study_server::{ServerProcess, ServerSide, measure_disk_rate};
use crate::sweep::topology::{LinkedNamespaces, LoadTopology};

/// Rounds of each capacity.
pub const CAPACITY_ROUNDS: u32 = 3;
/// Time of a round of a capacity, and of its warm-up.
pub(crate) const CAPACITY_ROUND_TIME: Duration = Duration::from_millis(1000);
const CAPACITY_WARM_UP: Duration = Duration::from_millis(300);
/// Users of the stream that shows what link and processors give: enough to keep both ends busy.
const STREAM_USERS: u64 = 4;
/// Longest time of a round of a capacity: until this many requests of a slow server were answered.
const STREAM_REQUESTS: f64 = 12.0;
/// Part of the time of a study that has a most that one such round takes at most: there are three of each pattern.
const STREAM_TIME_DIVISOR: u32 = 12;
/// Most threads of a server.
const MAX_WORKERS: u64 = 1024;
/// Longest time of a visit and of its warm-up, however slow the server is.
pub(crate) const MAX_STEP_TIME: Duration = Duration::from_secs(120);

/// Longest time of a round of a capacity in a study that may take this long.
pub(crate) fn max_stream_time(max_duration: Option<Duration>) -> Duration {
    max_duration.map_or(MAX_STEP_TIME, |time| (time / STREAM_TIME_DIVISOR).clamp(CAPACITY_ROUND_TIME, MAX_STEP_TIME))
}

/// A server that runs, and the files that it has. Dropped, it ends if it is the study's own.
#[derive(Debug)]
pub(crate) struct ServerUnderTest {
    /// What cases of its visits have in common.
    pub conditions: StudyConditions,
    runner: StepRunner,
    /// What its disk gave in each round, where files come from it.
    pub disk: Vec<DiskRateReport>,
    server: Option<ServerProcess>,
    /// The group that limits the server's memory; it goes after the server.
    memory: Option<Cgroup>,
    /// Whether all files are known to be in its page cache.
    is_in_memory: bool,
    /// The same server with other options, where it may be started for the same files.
    extra_workers: Option<ExtraWorkers>,
}

/// How to have more workers.
#[derive(Debug)]
struct ExtraWorkers {
    options: OwnServer,
    directory: PathBuf,
    instance: Option<(StepRunner, ServerProcess)>,
}

/// What a few users got of files in memory, before the first visit: what link and processors give. Several of each pattern.
pub(crate) type StreamResults = Vec<(RequestPattern, Vec<StepResult>)>;

/// Starts a server for each place where files are to be, for a load generator on these CPUs; between the first server and the first file it
/// calls `before_files`.
pub(crate) fn start_servers(
    options: &OwnServer,
    generator_cpus: &[u32],
    before_files: &dyn Fn(),
) -> Result<(Vec<ServerUnderTest>, LoadTopology)> {
    let topology = match options.network {
        NetworkSetup::Namespaces => Some(LinkedNamespaces::with_link(options.link)?),
        NetworkSetup::Loopback | NetworkSetup::Hosts => None,
    };
    let mut servers = Vec::new();
    for &cache in &options.caches {
        let before_files: &dyn Fn() = if servers.is_empty() { before_files } else { &|| {} };
        let side = ServerSide::new(options, &topology, options.memory_for(cache))?;
        servers.push(ServerUnderTest::start(side, cache, generator_cpus, before_files)?);
    }
    Ok((servers, topology))
}

impl ServerUnderTest {
    /// Starts the server, of which much may be refused, and makes the files, which takes long.
    fn start(side: ServerSide<'_>, cache: CacheState, generator_cpus: &[u32], before_files: &dyn Fn()) -> Result<Self> {
        let options = side.options;
        let file_error = |error| Error::Files(options.directory.clone(), error);
        let directory = options.directory.join(format!("files-{}", cache.name()));
        std::fs::create_dir(&directory).map_err(file_error)?;
        let server = side.serve(&directory, ("token", &options.arguments))?;
        before_files();
        let files = FileList::create(&directory, options.files)?;
        // On the server's side, in its control groups.
        let rounds = if cache == CacheState::Uncached { CAPACITY_ROUNDS } else { 0 };
        let disk =
            (0..rounds).map(|_| measure_disk_rate(&directory, |words| side.start(words))).collect::<Result<_>>()?;
        // Pages that are in memory since the files were made would not count against the server's limit.
        let is_cached = cache == CacheState::Cached;
        let state = if is_cached { PageCacheState::Cached } else { PageCacheState::Uncached };
        files.set_cache_state(&directory, state, (0, Duration::MAX))?;
        let url = format!("http://{}/", server.address);
        let (network, count, bytes) = (options.network, files.names.len() as u64, files.bytes);
        let paths = files.names.iter().map(|name| format!("/{name}")).collect();
        let runner = step_runner(&url, paths, generator_cpus, server.stats_client.clone())?;
        // The page cache of a limited server is its own: a second one would begin with none.
        let extra_options = options.memory_for(cache).is_none().then(|| options.clone());
        Ok(Self {
            conditions: StudyConditions { cache, network, files: count, bytes },
            runner,
            disk,
            server: Some(server),
            memory: side.memory,
            is_in_memory: is_cached,
            extra_workers: extra_options.map(|options| ExtraWorkers { options, directory, instance: None }),
        })
    }

    /// A server that runs already, for a load generator on these CPUs.
    pub fn connect(running: &ExistingServer, generator_cpus: &[u32]) -> Result<Self> {
        let ExistingServer { url, paths, stats_address: address, token, files } = running.clone();
        let count = paths.len() as u64;
        let network =
            if address.ip().to_canonical().is_loopback() { NetworkSetup::Loopback } else { NetworkSetup::Hosts };
        let is_in_memory = files.as_ref().is_some_and(|files| files.cache == CacheState::Cached);
        let KnownFiles { bytes, cache, disk } =
            files.unwrap_or(KnownFiles { bytes: 0, cache: CacheState::Cached, disk: Vec::new() });
        Ok(Self {
            conditions: StudyConditions { cache, network, files: count, bytes },
            runner: step_runner(&url, paths, generator_cpus, StatsClient { address, token })?,
            disk,
            server: None,
            memory: None,
            is_in_memory,
            extra_workers: None,
        })
    }

    /// How a few users ask for what shows link and processors, where a study asks by this pattern: by the same where all files are in
    /// memory, as a file that no CPU has in its cache costs more; else for one file, which the disk does not delay.
    pub fn stream_pattern(&self, pattern: RequestPattern) -> RequestPattern {
        if self.is_in_memory { pattern } else { RequestPattern::Fixed }
    }

    /// Has a few users ask by each pattern of these loads, each time for this long at most.
    pub fn run_streams(&mut self, loads: &[SweepLoad], seed: u64, max_time: Duration) -> Result<StreamResults> {
        let mut streams = StreamResults::new();
        for load in loads {
            let pattern = self.stream_pattern(load.pattern);
            if !streams.iter().any(|(key, _)| *key == pattern) {
                streams.push((pattern, self.run_pattern_streams(pattern, seed, max_time)?));
            }
        }
        // The size of files that were not made here is that of what came of one.
        if self.conditions.bytes == 0 {
            let LoadResult { bytes, requests, .. } = streams[0].1[0].load;
            self.conditions.bytes = bytes / requests.max(1);
        }
        Ok(streams)
    }

    fn run_pattern_streams(
        &mut self,
        pattern: RequestPattern,
        seed: u64,
        max_time: Duration,
    ) -> Result<Vec<StepResult>> {
        let spec = StepSpec {
            users: STREAM_USERS,
            think: Duration::ZERO,
            pattern: access_pattern(pattern),
            warm_up: CAPACITY_WARM_UP,
            duration: CAPACITY_ROUND_TIME,
            seed,
        };
        let first = self.run_stream(spec, max_time)?;
        let time = Duration::from_secs_f64(STREAM_REQUESTS / first.load.rate()).clamp(CAPACITY_ROUND_TIME, max_time);
        // One that was too short to count requests is made again with the time that they take.
        let mut streams = if time > CAPACITY_ROUND_TIME { Vec::new() } else { vec![first] };
        while streams.len() < CAPACITY_ROUNDS as usize {
            streams.push(self.run_stream(StepSpec { duration: time, ..spec }, max_time)?);
        }
        Ok(streams)
    }

    /// Makes a visit; one during which a server of the study's own has ended, or a process of it, is none.
    pub fn run_step(&mut self, spec: StepSpec) -> Result<StepResult> {
        let result = self.runner.run(spec);
        if let Err(Error::Interrupted(_)) = result {
            return result;
        }
        if let Some(end) = self.server.as_mut().and_then(|server| server.failure(self.memory.as_ref())) {
            return Err(end);
        }
        result
    }

    /// Whether the server could be started with this many workers as well.
    pub fn can_have_workers(&self, workers: u64) -> bool {
        self.extra_workers.is_some() && workers <= MAX_WORKERS
    }

    /// Makes a visit to the same server with this many workers, which is started for the first such visit.
    pub fn run_with_workers(&mut self, workers: u64, topology: &LoadTopology, spec: StepSpec) -> Result<StepResult> {
        let start_error = || Error::Server("it cannot be started with more workers".into());
        let ExtraWorkers { options: base_options, directory, instance } =
            self.extra_workers.as_mut().ok_or_else(start_error)?;
        if instance.is_none() {
            let side = ServerSide::new(base_options, topology, None)?;
            let options = with_workers(&base_options.arguments, workers);
            let server = side.serve(directory, ("more.token", &options))?;
            let url = format!("http://{}/", server.address);
            let StepRunner { paths, cpus, .. } = &self.runner;
            *instance = Some((step_runner(&url, paths.clone(), cpus, server.stats_client.clone())?, server));
        }
        let (visitor, _) = instance.as_mut().ok_or_else(start_error)?;
        visitor.run(spec)
    }

    fn run_stream(&mut self, spec: StepSpec, max_time: Duration) -> Result<StepResult> {
        let result = self.run_step(spec)?;
        if result.load.requests > 0 {
            return Ok(result);
        }
        if result.load.errors.count() == 0 && spec.duration < max_time {
            return self.run_stream(StepSpec { duration: (spec.duration * 4).min(max_time), ..spec }, max_time);
        }
        let no_answer = || format!("none within {}", seconds(max_time.as_secs_f64()));
        Err(Error::Unanswered(result.load.errors.first.unwrap_or_else(no_answer)))
    }
}

/// The options of a server with this many workers instead of those that it has.
fn with_workers(options: &[String], workers: u64) -> Vec<String> {
    const NAME: &str = "--threads";
    let (mut changed, mut is_value) = (Vec::new(), false);
    for option in options {
        let is_name = option == NAME;
        if !is_name && !is_value && !option.starts_with("--threads=") {
            changed.push(option.clone());
        }
        is_value = is_name;
    }
    changed.extend([NAME.to_owned(), workers.to_string()]);
    changed
}

fn step_runner(url: &str, paths: Vec<String>, cpus: &[u32], endpoint: StatsClient) -> Result<StepRunner> {
    let target = url.parse().map_err(Error::Server)?;
    let process = ProcessMonitor::current(None).without_descendants();
    Ok(StepRunner { target, paths, cpus: cpus.to_vec(), stats_client: endpoint, process })
}

/// The order of requests of a pattern.
pub(crate) fn access_pattern(pattern: RequestPattern) -> AccessPattern {
    match pattern {
        RequestPattern::Random => AccessPattern::Random,
        RequestPattern::Fixed => AccessPattern::Fixed,
        RequestPattern::Sequence => AccessPattern::Sequence,
        RequestPattern::Zipf => AccessPattern::Zipf(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_workers_keep_other_options() {
        let options = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for arguments in
            ["--model pool --threads 2 --send rw", "--model pool --threads=2 --send rw", "--model pool --send rw"]
        {
            assert_eq!(
                with_workers(&options(arguments), 4),
                options("--model pool --send rw --threads 4"),
                "{arguments}"
            );
        }
    }
}
