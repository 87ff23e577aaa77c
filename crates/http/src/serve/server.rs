//! The server: its listening socket, its threads, and its end.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{Shutdown, listen, shutdown};

use crate::serve::document_root::DocumentRoot;
use crate::serve::epoll;
use crate::serve::error::{Error, Result};
use crate::serve::fd_passing::{self, FdReceiver, FdSender};
use crate::serve::fork::{self, ForkServer, ForkStatus};
use crate::serve::host::{AllowedHosts, HostName};
use crate::serve::in_flight_sampler::InFlightSampler;
use crate::serve::keywords;
use crate::serve::limits::ServerLimits;
use crate::serve::listing::ListingCache;
use crate::serve::open_file_cache::{FileBudget, OpenFileCache};
use crate::serve::send_strategy::SendStrategy;
use crate::serve::send_strategy::bulk_method::BulkStats;
use crate::serve::shared_state::SharedState;
use crate::serve::site::{Site, SiteConfig};
use crate::serve::stats_endpoint::{self, StatsAccess, StatsServer, StatsSources};
use crate::serve::thread_server::{self, ThreadMode};
use crate::serve::uring;
use crate::serve::worker_context::WorkerContext;
use kelvin_sys::thread_spawn::ThreadBuilder;

/// Connections that may wait to be accepted; the kernel cuts it to net.core.somaxconn.
const LISTEN_BACKLOG: i32 = 4096;
/// How often it is asked whether the server is to end.
pub(crate) const SHUTDOWN_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How often some connections are accepted at the end: whoever waits then is served, and a crowd keeps no server from ending.
pub(crate) const FINAL_ACCEPTS: usize = 64;
/// Descriptors that are neither connections nor files of the root, of which lists may have a half.
const RESERVED_DESCRIPTORS: u64 = 128;
/// Most files that each thread holds open.
const MAX_HELD_FILES: u64 = 4096;
/// Most files that a process or thread of one connection holds open: a client comes back to few, and there may be many of them.
const MAX_HELD_FILES_SINGLE: u64 = 16;

/// Who serves connections, and how it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerModel {
    /// A process for each connection.
    Fork,
    /// A thread for each connection.
    Thread,
    /// A fixed number of threads, each of which serves one connection until its end.
    Pool,
    /// A fixed number of threads, each of which serves many connections as they become ready.
    #[default]
    Epoll,
    /// A fixed number of threads, each of which serves many connections by requests to an io_uring.
    Uring,
}

/// All of them, by the words for them.
const MODEL_NAMES: [(&str, ServerModel); 5] = [
    ("fork", ServerModel::Fork),
    ("thread", ServerModel::Thread),
    ("pool", ServerModel::Pool),
    ("epoll", ServerModel::Epoll),
    ("uring", ServerModel::Uring),
];

impl ServerModel {
    /// The ways of sending that it has: by a ring there is none of sendfile, and its splice waits in a thread of the kernel for each
    /// client that does not read.
    fn send_strategies(self) -> &'static [SendStrategy] {
        match self {
            Self::Uring => &[SendStrategy::Auto, SendStrategy::ReadWrite],
            _ => &[
                SendStrategy::Auto,
                SendStrategy::ReadWrite,
                SendStrategy::Mmap,
                SendStrategy::SendFile,
                SendStrategy::Splice,
            ],
        }
    }

    /// Whether it sends in this way.
    fn check_strategy(self, sending: SendStrategy) -> Result<()> {
        let by = || self.send_strategies().iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        if self.send_strategies().contains(&sending) {
            Ok(())
        } else {
            Err(Error::UnsupportedStrategy { model: self, by: by() })
        }
    }
}

impl FromStr for ServerModel {
    type Err = String;

    fn from_str(word: &str) -> std::result::Result<Self, String> {
        keywords::parse_keyword(&MODEL_NAMES, word)
    }
}

impl fmt::Display for ServerModel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(keywords::keyword_of(&MODEL_NAMES, self))
    }
}

/// How a server works.
#[derive(Clone, Copy, Debug)]
pub struct ServerSetup {
    /// Who serves connections.
    pub model: ServerModel,
    /// Threads that serve, of a model that has a fixed number.
    pub threads: usize,
    /// By which calls the bytes of files go.
    pub send_strategy: SendStrategy,
    /// Whether directories are listed that have no index.html.
    pub lists_directories: bool,
    /// The limits.
    pub limits: ServerLimits,
}

impl ServerSetup {
    /// With so many threads, and everything else as is best.
    pub fn with_threads(threads: usize) -> Self {
        Self {
            model: ServerModel::default(),
            threads,
            send_strategy: SendStrategy::default(),
            lists_directories: false,
            limits: ServerLimits::default(),
        }
    }
}

/// How many files are held open between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileCacheLimits {
    /// By each thread, at most.
    per_thread: usize,
    /// By all threads of a process together.
    total: usize,
}

impl ServerSetup {
    /// Limits connections to what so many descriptors allow, and says how many files may be held open between requests.
    fn divide_descriptors(&mut self, descriptors: u64) -> FileCacheLimits {
        let own = self.send_strategy.descriptor_count();
        if self.model == ServerModel::Fork {
            // Each process has descriptors of its own.
            let all = descriptors.saturating_sub(own + 1).min(MAX_HELD_FILES_SINGLE) as usize;
            return FileCacheLimits { per_thread: all, total: all };
        }
        let (fixed, of_each) =
            if self.model == ServerModel::Thread { (0, 1 + own) } else { (self.threads.max(1) as u64, 1) };
        let free = descriptors.saturating_sub(own * fixed);
        let connections = u64::from(self.limits.connections).min((free - free / 4) / of_each).max(1);
        self.limits.connections = connections as u32;
        let left = free.saturating_sub(connections * of_each);
        let each = left.checked_div(fixed).map_or(MAX_HELD_FILES_SINGLE, |each| each.min(MAX_HELD_FILES));
        FileCacheLimits { per_thread: each as usize, total: left as usize }
    }
}

impl ServerSetup {
    /// What watches the connections of a socket. Threads that accept at one moment may accept one more each than there may be.
    fn new_sampler(&self, listener: &TcpListener) -> Result<Arc<InFlightSampler>> {
        InFlightSampler::new(listener, self.limits.connections as usize + self.threads).map(Arc::new)
    }
}

/// Who may ask, and for what besides files.
#[derive(Default)]
pub struct ServerAccess {
    /// Names by which the server may be asked besides its own: see [`AllowedHosts::for_address`].
    pub names: Vec<HostName>,
    /// Who may look at what it uses. Looks are answered at an address of their own, and nothing below `.kelvin` in the root is
    /// served then. Each connection that is watched needs two descriptors, and so there are fewer of them.
    pub stats_access: Option<StatsAccess>,
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: Arc<TcpListener>,
    root: Arc<DocumentRoot>,
    names: AllowedHosts,
    setup: ServerSetup,
    cache_limits: FileCacheLimits,
    /// Whether anybody may look at what it uses.
    serves_stats: bool,
    /// Where looks are answered, and what for.
    stats: Option<StatsServer>,
    sampler: Option<Arc<InFlightSampler>>,
    /// The process that accepts, under [`ServerModel::Fork`].
    fork_server: Option<ForkServer>,
    /// Where it tells of its connections, if they are watched.
    fd_receiver: Option<FdReceiver>,
}

/// Opens the directory of a server anew while it serves.
#[derive(Debug)]
pub struct RootReopener {
    root: Arc<DocumentRoot>,
    /// What the process that forks looks at, under [`ServerModel::Fork`].
    fork_status: Option<ForkStatus>,
}

impl RootReopener {
    /// Opens what the path of the directory names now. Connections go on; a file of the former directory may be sent for a second more,
    /// and under [`ServerModel::Fork`] until the connections that there are have ended.
    ///
    /// # Errors
    /// A path that is no directory any more: the former one is served on.
    pub fn reopen(&self) -> Result<()> {
        self.root.reopen()?;
        self.fork_status.iter().for_each(ForkStatus::request_reopen);
        Ok(())
    }
}

/// What a server did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerTotals {
    /// Requests that were answered, in whatever way.
    pub requests: u64,
    /// Bytes that were sent, heads included.
    pub bytes: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were turned away because there were too many.
    pub refused: u64,
    /// By which calls larger files went, if they were chosen.
    pub bulk: BulkStats,
}

impl std::ops::Add for ServerTotals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            bytes: self.bytes + other.bytes,
            connections: self.connections + other.connections,
            refused: self.refused + other.refused,
            bulk: self.bulk + other.bulk,
        }
    }
}

impl Server {
    /// Listens, and opens the root. Connections are limited to what this process may have descriptors for. Under [`ServerModel::Fork`] this
    /// starts the process that accepts and forks, which ends with the thread that called.
    ///
    /// # Errors
    /// An address that cannot be had; a root that is none; under [`ServerModel::Fork`] a process that has other threads.
    pub fn listen(address: SocketAddr, root: &Path, setup: ServerSetup) -> Result<Self> {
        Self::listen_with(address, root, setup, ServerAccess::default())
    }

    /// The same, for others or for more.
    ///
    /// # Errors
    /// Those of [`Self::listen`], and [`Error::ListenStats`].
    pub fn listen_with(address: SocketAddr, root: &Path, mut setup: ServerSetup, access: ServerAccess) -> Result<Self> {
        let (names, exposure) = (AllowedHosts::for_address(address.ip(), access.names), access.stats_access);
        setup.model.check_strategy(setup.send_strategy)?;
        let root = Arc::new(DocumentRoot::open(root)?);
        let listener = Arc::new(bind_listener(address).map_err(Error::Listen)?);
        let is_exposed = exposure.is_some();
        if is_exposed {
            setup.limits.connections = max_trackable(setup.limits.connections);
        }
        let held = setup.divide_descriptors(descriptor_limit().saturating_sub(RESERVED_DESCRIPTORS));
        let watch = exposure.as_ref().map(|_| setup.new_sampler(&listener)).transpose()?;
        let mut server = Self {
            listener,
            root,
            names,
            setup,
            cache_limits: held,
            serves_stats: is_exposed,
            stats: None,
            sampler: watch,
            fork_server: None,
            fd_receiver: None,
        };
        if setup.model == ServerModel::Uring {
            uring::probe()?;
            // The ring waits for what is not there only where calls would.
            server.listener.set_nonblocking(false).map_err(Error::Listen)?;
        }
        if setup.model == ServerModel::Fork {
            let (teller, told) = server.sampler.as_ref().map(|_| fd_passing::fd_channel()).transpose()?.unzip();
            server.fork_server = Some(ForkServer::start(server.fork_config(teller)?)?);
            server.fd_receiver = told;
        }
        // After that, so that no process that serves has its socket.
        server.stats = exposure.map(StatsServer::listen).transpose()?;
        Ok(server)
    }

    /// What opens its directory anew.
    pub fn reopener(&self) -> RootReopener {
        RootReopener { root: Arc::clone(&self.root), fork_status: self.fork_server.as_ref().map(ForkServer::status) }
    }

    /// Where it answers looks, if it does.
    ///
    /// # Errors
    /// Those of getsockname.
    pub fn stats_address(&self) -> Result<Option<SocketAddr>> {
        self.stats.as_ref().map(StatsServer::address).transpose()
    }

    /// Has connections that are accepted from now on send by this congestion control, instead of the one that the system has.
    ///
    /// # Errors
    /// `NotFound` for one that the kernel does not have or does not allow.
    pub fn set_congestion_control(&self, congestion_control: &str) -> std::io::Result<()> {
        kelvin_sys::net::set_congestion_control(&self.listener, congestion_control)
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Those of getsockname.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(Error::Listen)
    }

    /// Most connections at one time.
    pub fn max_connections(&self) -> u32 {
        self.setup.limits.connections
    }

    /// Serves until it is to end; then no connection is accepted, and those that are there end with the answer that is being
    /// sent, or after the time for that.
    ///
    /// # Errors
    /// What kept the threads from being started.
    pub fn serve(mut self, is_over: impl Fn() -> bool) -> Result<ServerTotals> {
        let subject = StatsSources {
            sampler: self.sampler.clone(),
            fd_receiver: self.fd_receiver.take(),
            listener: Arc::clone(&self.listener),
            workers: (self.setup.model == ServerModel::Pool).then_some(self.setup.threads as u32),
        };
        // They go on until its end.
        let _looks = self.stats.take().map(|looks| looks.start(subject)).transpose()?;
        self.serve_with_model(is_over)
    }

    fn serve_with_model(self, is_over: impl Fn() -> bool) -> Result<ServerTotals> {
        match self.setup.model {
            ServerModel::Fork => self.fork_server.map_or(Ok(ServerTotals::default()), |forking| forking.serve(is_over)),
            ServerModel::Epoll => self.serve_with_workers(serve_epoll, is_over),
            ServerModel::Uring => self.serve_with_workers(serve_uring, is_over),
            ServerModel::Thread => self.thread_server().serve(ThreadMode::PerConnection, is_over),
            ServerModel::Pool => self.thread_server().serve(ThreadMode::Pool(self.setup.threads), is_over),
        }
    }

    fn serve_with_workers(self, work: WorkerFn, is_over: impl Fn() -> bool) -> Result<ServerTotals> {
        let (house, make) = self.event_loop_state()?;
        let start = |number| {
            let (house, hall) = (Arc::clone(&house), make());
            ThreadBuilder::named("serve").start(move || work(number, house, hall))
        };
        let threads: std::io::Result<Vec<_>> = (0..self.setup.threads).map(start).collect();
        let goes_on = |threads: &Vec<JoinHandle<_>>| !threads.iter().any(JoinHandle::is_finished);
        while threads.as_ref().is_ok_and(goes_on) && !is_over() {
            std::thread::sleep(SHUTDOWN_POLL_INTERVAL);
        }
        house.begin_shutdown(Instant::now() + self.setup.limits.drain_timeout);
        let threads = threads.map_err(Error::SpawnThread)?;
        let mut served =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Ok(ServerTotals::default())));
        served.try_fold(ServerTotals::default(), |sum, served| Ok(sum + served?))
    }

    pub(crate) fn event_loop_state(&self) -> Result<(Arc<SharedState>, impl Fn() -> WorkerContext)> {
        let house = SharedState::new(Arc::clone(&self.listener), self.setup.threads, self.max_connections())?;
        Ok((Arc::new(house), self.context_factory(ListingCache::default())))
    }

    fn thread_server(&self) -> thread_server::ThreadServer<impl Fn() -> WorkerContext + Send + Sync + Clone + 'static> {
        let (hall, listener) = (self.context_factory(ListingCache::default()), Arc::clone(&self.listener));
        let (most, watch) = (self.max_connections(), self.sampler.clone());
        thread_server::ThreadServer {
            make_context: hall,
            listener,
            max_connections: most,
            drain_timeout: self.setup.limits.drain_timeout,
            sampler: watch,
        }
    }

    fn fork_config(&self, teller: Option<FdSender>) -> Result<fork::ForkConfig<impl Fn() -> WorkerContext + use<>>> {
        let lists = ListingCache::for_processes().map_err(Error::call("make a file in memory"))?;
        let (hall, listener) = (self.context_factory(lists), Arc::clone(&self.listener));
        let (most, watch) = (self.max_connections(), self.sampler.clone().zip(teller));
        Ok(fork::ForkConfig {
            make_context: hall,
            root: Arc::clone(&self.root),
            listener,
            max_connections: most,
            drain_timeout: self.setup.limits.drain_timeout,
            tracking: watch,
        })
    }

    /// Makes what each thread needs.
    fn context_factory(&self, shown: ListingCache) -> impl Fn() -> WorkerContext + Send + Sync + Clone + use<> {
        let (root, held, ServerSetup { send_strategy: sending, lists_directories: lists, limits, .. }) =
            (Arc::clone(&self.root), self.cache_limits, self.setup);
        let (names, shown) = (self.names.clone(), Arc::new(shown));
        let manner = SiteConfig {
            names,
            lists_directories: lists,
            listings: shown,
            inline_limit: sending.inline_limit(),
            limits,
        };
        let watch = self.sampler.clone();
        let reserved = self.serves_stats.then_some(stats_endpoint::RESERVED_NAME);
        let allowance = FileBudget::new(held.total);
        move || {
            let files = OpenFileCache::new(Arc::clone(&root), held.per_thread)
                .with_budget(Arc::clone(&allowance))
                .with_reserved_name(reserved);
            let mut hall = WorkerContext::new(Site::new(files, manner.clone()), sending);
            hall.sampler = watch.clone();
            hall
        }
    }
}

/// What one of several threads does until the end.
type WorkerFn = fn(usize, Arc<SharedState>, WorkerContext) -> Result<ServerTotals>;

fn serve_epoll(number: usize, house: Arc<SharedState>, hall: WorkerContext) -> Result<ServerTotals> {
    epoll::EpollWorker::new(number, house, hall).map(epoll::EpollWorker::run)
}

fn serve_uring(number: usize, house: Arc<SharedState>, hall: WorkerContext) -> Result<ServerTotals> {
    uring::UringWorker::new(number, house, hall).map(uring::UringWorker::run)
}

/// Refuses further connections.
pub(crate) fn close_listener(listener: &TcpListener) {
    // One that is closed already refuses them, too.
    let _ = shutdown(listener, Shutdown::Both);
}

/// A socket that listens.
fn bind_listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    // What is accepted has what listens has: answers are whole when they are sent, and nothing is to be waited for.
    set_tcp_nodelay(&listener, true).and_then(|()| listen(&listener, LISTEN_BACKLOG))?;
    Ok(listener)
}

/// Most of so many connections that can be watched.
fn max_trackable(connections: u32) -> u32 {
    let most = descriptor_limit().saturating_sub(RESERVED_DESCRIPTORS) / 8 * 3;
    u64::from(connections).min(most).max(1) as u32
}

/// Descriptors that this process may have.
fn descriptor_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_cache_fit_descriptor_limit() {
        let models =
            [(ServerModel::Epoll, 2), (ServerModel::Pool, 64), (ServerModel::Pool, 1024), (ServerModel::Thread, 2)];
        for ((model, threads), sending) in
            models.into_iter().flat_map(|of| [(of, SendStrategy::Auto), (of, SendStrategy::Splice)])
        {
            for descriptors in [0, 1, 5, 5000, 20_000, 1_000_000] {
                let mut setup = ServerSetup { model, send_strategy: sending, ..ServerSetup::with_threads(threads) };
                let held = setup.divide_descriptors(descriptors);
                let connections = u64::from(setup.limits.connections);
                let holders = if model == ServerModel::Thread { connections } else { threads as u64 };
                let taken = connections + held.total as u64 + sending.descriptor_count() * holders;
                assert!(
                    connections >= 1 && (taken <= descriptors || descriptors < 20),
                    "{model} {sending} {descriptors}"
                );
            }
        }
        let mut alone = ServerSetup { model: ServerModel::Fork, ..ServerSetup::with_threads(1) };
        assert_eq!(alone.divide_descriptors(1000), FileCacheLimits { per_thread: 16, total: 16 });
        assert_eq!(alone.limits.connections, ServerLimits::default().connections);
        assert_eq!(ServerSetup::with_threads(2).divide_descriptors(1_000_000).per_thread, 4096);
        let mut threads = ServerSetup { model: ServerModel::Thread, ..ServerSetup::with_threads(1) };
        assert_eq!(threads.divide_descriptors(1000), FileCacheLimits { per_thread: 16, total: 250 });
    }
}
