//! Where a study visits: a server with its files, and what a few users get of it before the first visit.

use std::path::PathBuf;
use std::time::Duration;

use kelvin_catalogue::file::CacheState;
use kelvin_catalogue::load::{Between, Pattern};
use kelvin_file::cache::State;
use kelvin_file::group::Group;
use kelvin_load::pattern;
use kelvin_model::units::seconds;
use kelvin_resources::Watched;

use crate::disk::DiskRate;
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::figures::Common;
use crate::place::Place;
use crate::server::{Server, Side};
use crate::set::FileSet;
use crate::setup::{KnownFiles, Load, Own, Running};
use crate::visit::{Visited, Visitor, Wish};

/// Rounds of each capacity.
pub const ROUNDS: u32 = 3;
/// Time of a round of a capacity, and of its warm-up.
pub(crate) const ROUND: Duration = Duration::from_millis(1000);
const WARM_UP: Duration = Duration::from_millis(300);
/// Users of the stream that shows what link and processors give: enough to keep both ends busy.
const USERS_OF_STREAM: u64 = 4;
/// Longest time of a round of a capacity: until so many requests of a slow server were answered.
const REQUESTS_OF_STREAM: f64 = 12.0;
/// Part of the time of a study that has a most that one such round takes at most: there are three of each pattern.
const SHARE_OF_STREAM: u32 = 12;
/// Most threads of a server.
const MOST_WORKERS: u64 = 1024;
/// Longest time of a visit and of its warm-up, however slow the server is.
pub(crate) const LONGEST: Duration = Duration::from_secs(120);

/// Longest time of a round of a capacity in a study that may take so long.
pub(crate) fn longest_stream(most: Option<Duration>) -> Duration {
    most.map_or(LONGEST, |most| (most / SHARE_OF_STREAM).clamp(ROUND, LONGEST))
}

/// A server that runs, and the files that it has. Dropped, it ends if it is the study's own.
#[derive(Debug)]
pub(crate) struct Site {
    /// What cases of its visits have in common.
    pub common: Common,
    visitor: Visitor,
    /// What its disk gave in each round, where files come from it.
    pub disk: Vec<DiskRate>,
    server: Option<Server>,
    /// The group that limits the server's memory; it goes after the server.
    memory: Option<Group>,
    /// Whether all files are known to be in its page cache.
    is_in_memory: bool,
    /// The same server with other options, where it may be started for the same files.
    more: Option<More>,
}

/// How to have more workers.
#[derive(Debug)]
struct More {
    own: Own,
    directory: PathBuf,
    started: Option<(Visitor, Server)>,
}

/// What a few users got of files in memory, before the first visit: what link and processors give. Several of each pattern.
#[derive(Debug)]
pub(crate) struct Streams(Vec<(Pattern, Vec<Visited>)>);

impl Streams {
    /// The first of all.
    pub fn first(&self) -> &Visited {
        &self.0[0].1[0]
    }

    /// Those of a pattern that was streamed.
    pub fn of(&self, pattern: Pattern) -> &[Visited] {
        self.0.iter().find(|(known, _)| *known == pattern).map_or(&[], |(_, streams)| streams)
    }
}

/// Starts a server for each place where files are to be; between the first server and the first file it calls `before_files`.
pub(crate) fn start(own: &Own, before_files: &dyn Fn()) -> Result<(Vec<Site>, Place)> {
    let place = match own.between {
        Between::Namespaces => Place::apart(own.link)?,
        Between::Loopback | Between::Hosts => Place::here(),
    };
    let sites: Result<Vec<Site>> = own
        .caches
        .iter()
        .enumerate()
        .map(|(index, &cache)| {
            let once = || {
                if index == 0 {
                    before_files()
                }
            };
            Site::start(Side::new(own, &place, own.memory_of(cache))?, cache, &once)
        })
        .collect();
    Ok((sites?, place))
}

impl Site {
    /// Starts the server, of which much may be refused, and makes the files, which takes long.
    fn start(side: Side<'_>, cache: CacheState, before_files: &dyn Fn()) -> Result<Self> {
        let own = side.own();
        let failed = |source| Error::Files { directory: own.directory.clone(), source };
        let directory = own.directory.join(format!("files-{}", cache.name()));
        std::fs::create_dir(&directory).map_err(failed)?;
        let server = Server::start(&side, &directory)?;
        before_files();
        let set = FileSet::make(&directory, own.files)?;
        let disk = if cache == CacheState::Uncached { disk_rates(&side, &set)? } else { Vec::new() };
        // Pages that whoever made the files has left in memory would not count against the server's limit.
        set.bring(if cache == CacheState::Cached { State::Cached } else { State::Uncached })?;
        let common = Common { cache, between: own.between, files: set.count, bytes: set.bytes };
        let url = format!("http://{}/", server.address);
        let paths = set.names().iter().map(|name| format!("/{name}")).collect();
        let visitor = visitor(&url, paths, server.endpoint.clone())?;
        let is_in_memory = cache == CacheState::Cached;
        // The page cache of a limited server is its own: a second one would begin with none.
        let own = own.memory_of(cache).is_none().then(|| own.clone());
        let more = own.map(|own| More { own, directory, started: None });
        Ok(Self { common, visitor, disk, server: Some(server), memory: side.into_memory(), is_in_memory, more })
    }

    /// A server that runs already.
    pub fn join(running: &Running) -> Result<Self> {
        let Running { url, paths, resources, token, files } = running.clone();
        let count = paths.len() as u64;
        let visitor = visitor(&url, paths, Endpoint { address: resources, token })?;
        let between = if resources.ip().to_canonical().is_loopback() { Between::Loopback } else { Between::Hosts };
        let is_in_memory = files.as_ref().is_some_and(|files| files.cache == CacheState::Cached);
        let KnownFiles { bytes, cache, disk } =
            files.unwrap_or(KnownFiles { bytes: 0, cache: CacheState::Cached, disk: Vec::new() });
        let common = Common { cache, between, files: count, bytes };
        Ok(Self { common, visitor, disk, server: None, memory: None, is_in_memory, more: None })
    }

    /// How a few users ask for what shows link and processors, where a study asks by this pattern: by the same where all files are in
    /// memory, as a file that no CPU has in its cache costs more; else for one file, which the disk does not delay.
    pub fn streamed(&self, pattern: Pattern) -> Pattern {
        if self.is_in_memory { pattern } else { Pattern::Fixed }
    }

    /// Has a few users ask by each pattern of these loads, each time for so long at most.
    pub fn streams(&mut self, loads: &[Load], seed: u64, longest: Duration) -> Result<Streams> {
        let mut streams: Vec<(Pattern, Vec<Visited>)> = Vec::new();
        for load in loads {
            let pattern = self.streamed(load.pattern);
            if !streams.iter().any(|(known, _)| *known == pattern) {
                streams.push((pattern, self.streams_by(pattern, seed, longest)?));
            }
        }
        let streams = Streams(streams);
        self.learn_bytes(streams.first());
        Ok(streams)
    }

    fn streams_by(&mut self, pattern: Pattern, seed: u64, longest: Duration) -> Result<Vec<Visited>> {
        let wish = Wish {
            users: USERS_OF_STREAM,
            think: Duration::ZERO,
            pattern: order_of(pattern),
            warm_up: WARM_UP,
            duration: ROUND,
            seed,
        };
        let first = self.stream(wish, longest)?;
        let time = Duration::from_secs_f64(REQUESTS_OF_STREAM / first.load.rate()).clamp(ROUND, longest);
        // One that was too short to count requests is made again with the time that they take.
        let mut streams = if time > ROUND { Vec::new() } else { vec![first] };
        while streams.len() < ROUNDS as usize {
            streams.push(self.stream(Wish { duration: time, ..wish }, longest)?);
        }
        Ok(streams)
    }

    /// Learns the size of files that were not made here from what came of one.
    fn learn_bytes(&mut self, stream: &Visited) {
        if self.common.bytes == 0 {
            self.common.bytes = stream.load.bytes / stream.load.requests.max(1);
        }
    }

    /// Makes a visit; one that a signal ended is none, nor is one during which a server of the study's own has ended, or a process of it.
    pub fn visit(&mut self, wish: Wish) -> Result<Visited> {
        let visited = self.visitor.visit(wish);
        if let Err(Error::Interrupted(_)) = visited {
            return visited;
        }
        if let Some(end) = self.server.as_mut().and_then(|server| server.end(self.memory.as_ref())) {
            return Err(end);
        }
        let visited = visited?;
        match visited.load.interrupted.clone() {
            Some(signal) => Err(Error::Interrupted(signal)),
            None => Ok(visited),
        }
    }

    /// Whether the server could be started with so many workers as well.
    pub fn may_have_workers(&self, workers: u64) -> bool {
        self.more.is_some() && workers <= MOST_WORKERS
    }

    /// Makes a visit to the same server with so many workers, which is started for the first such visit.
    pub fn visit_with_workers(&mut self, workers: u64, place: &Place, wish: Wish) -> Result<Visited> {
        let nobody = || Error::Server("it cannot be started with more workers".into());
        let More { own, directory, started } = self.more.as_mut().ok_or_else(nobody)?;
        if started.is_none() {
            let side = Side::new(own, place, None)?;
            let options = with_workers(&own.arguments, workers);
            let server = Server::start_with(&side, directory, ("more.token", &options))?;
            let url = format!("http://{}/", server.address);
            *started = Some((visitor(&url, self.visitor.paths.clone(), server.endpoint.clone())?, server));
        }
        let (visitor, _) = started.as_mut().ok_or_else(nobody)?;
        let visited = visitor.visit(wish)?;
        match visited.load.interrupted.clone() {
            Some(signal) => Err(Error::Interrupted(signal)),
            None => Ok(visited),
        }
    }

    fn stream(&mut self, wish: Wish, longest: Duration) -> Result<Visited> {
        let visited = self.visit(wish)?;
        if visited.load.requests > 0 {
            return Ok(visited);
        }
        if visited.load.errors.count() == 0 && wish.duration < longest {
            return self.stream(Wish { duration: (wish.duration * 4).min(longest), ..wish }, longest);
        }
        let none = || format!("none within {}", seconds(longest.as_secs_f64()));
        Err(Error::Unanswered(visited.load.errors.first.unwrap_or_else(none)))
    }
}

/// The options of a server with so many workers instead of those that it has.
fn with_workers(options: &[String], workers: u64) -> Vec<String> {
    const NAME: &str = "--threads";
    let (mut kept, mut is_value) = (Vec::new(), false);
    for option in options {
        let is_name = option == NAME;
        if !is_name && !is_value && !option.starts_with("--threads=") {
            kept.push(option.clone());
        }
        is_value = is_name;
    }
    kept.extend([NAME.to_owned(), workers.to_string()]);
    kept
}

fn visitor(url: &str, paths: Vec<String>, endpoint: Endpoint) -> Result<Visitor> {
    let target = url.parse().map_err(Error::Server)?;
    let own = Watched::own(None).alone();
    Ok(Visitor { target, paths, endpoint, own })
}

/// What the disk gives on the server's side, in its control groups.
fn disk_rates(side: &Side<'_>, set: &FileSet) -> Result<Vec<DiskRate>> {
    (0..ROUNDS).map(|_| side.disk_rate(&set.directory)).collect()
}

/// The order of requests of a pattern.
pub(crate) fn order_of(pattern: Pattern) -> pattern::Pattern {
    match pattern {
        Pattern::Random => pattern::Pattern::Random,
        Pattern::Fixed => pattern::Pattern::Fixed,
        Pattern::Sequence => pattern::Pattern::Sequence,
        Pattern::Zipf => pattern::Pattern::Zipf(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_more_workers_has_all_other_options() {
        let options = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for given in
            ["--model pool --threads 2 --send rw", "--model pool --threads=2 --send rw", "--model pool --send rw"]
        {
            assert_eq!(with_workers(&options(given), 4), options("--model pool --send rw --threads 4"), "{given}");
        }
    }
}
