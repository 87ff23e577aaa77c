//! The server: its socket, what every model serves with, and the list of models.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::serve::access_log::AccessLog;
use crate::serve::cache_control::CacheRules;
use crate::serve::document_root::DocumentRoot;
use crate::serve::epoll::EpollSelector;
use crate::serve::error::{Error, Result};
use crate::serve::event_loop::serve_with_workers;
use crate::serve::fork::{ForkServer, ForkStatus};
use crate::serve::host::{AllowedHosts, HostName};
use crate::serve::in_flight_sampler::InFlightSampler;
use crate::serve::limits::ServerLimits;
use crate::serve::listener::{self, Listener, SocketFile, UnixSocket};
use crate::serve::model::ServerModel;
use crate::serve::open_file_cache::FileBudget;
use crate::serve::poll::PollSelector;
use crate::serve::readiness::{ReadinessWorker, Selector};
use crate::serve::request::Scheme;
use crate::serve::send_strategy::{STRATEGY_NAMES, SendStrategy};
use crate::serve::server_user::ServerUser;
use crate::serve::site::SiteConfig;
use crate::serve::stats_endpoint::{StatsAccess, StatsServer};
use crate::serve::thread_server::ThreadServer;
use crate::serve::tls::{TlsIdentity, TlsTransport};
use crate::serve::transport::PlainTransport;
use crate::serve::uring::{self, UringWorker};
use crate::serve::worker_context::{ServerTotals, Service};

/// Descriptors that are neither connections nor files of the root, of which lists may have a half.
const RESERVED_DESCRIPTORS: u64 = 128;
/// Most files that each thread holds open.
const MAX_HELD_FILES: u64 = 4096;
/// Most files that a process or thread of one connection holds open: a client comes back to few, and there may be many of them.
const MAX_HELD_FILES_SINGLE: u64 = 16;

impl ServerModel {
    /// Whether it can send by these calls. By a ring there is no sendfile, and its splice waits in a thread of the kernel for each
    /// client that does not read.
    fn supports(self, strategy: SendStrategy) -> bool {
        self != Self::Uring || matches!(strategy, SendStrategy::Auto | SendStrategy::ReadWrite)
    }

    /// The calls by which it sends what is encrypted, where these were asked for.
    fn encrypting_strategy(self, strategy: SendStrategy) -> Result<SendStrategy> {
        match strategy {
            _ if self == Self::Uring => Err(Error::UnsupportedTls(self)),
            SendStrategy::Auto | SendStrategy::ReadWrite => Ok(SendStrategy::ReadWrite),
            SendStrategy::Mmap | SendStrategy::SendFile | SendStrategy::Splice => Err(Error::UnencryptedStrategy),
        }
    }
}

/// How a server works.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerSetup {
    /// Who serves connections.
    pub model: ServerModel,
    /// Threads that serve, of a model that has a fixed number.
    pub threads: usize,
    /// By which calls the bytes of files go.
    pub send_strategy: SendStrategy,
    /// Whether directories are listed that have no index.html.
    pub lists_directories: bool,
    /// Whether clients that take compressed files are sent those that lie beside the ones that they ask for.
    pub sends_compressed: bool,
    /// The limits.
    pub limits: ServerLimits,
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
    /// With this many threads, and everything else as is best.
    pub fn with_threads(threads: usize) -> Self {
        Self { threads, ..Self::default() }
    }

    /// Limits connections to what this many descriptors allow, and returns how many files may be held open between requests.
    fn divide_descriptors(&mut self, descriptors: u64) -> FileCacheLimits {
        let sender_descriptors = self.send_strategy.descriptor_count();
        let (fixed, per_connection) = match self.model {
            // Each process has descriptors of its own.
            ServerModel::Fork => {
                let files = descriptors.saturating_sub(sender_descriptors + 1).min(MAX_HELD_FILES_SINGLE) as usize;
                return FileCacheLimits { per_thread: files, total: files };
            }
            // Each connection has a thread, which sends.
            ServerModel::Thread => (0, 1 + sender_descriptors),
            ServerModel::Pool | ServerModel::Poll | ServerModel::Epoll | ServerModel::Uring => {
                (self.threads.max(1) as u64, 1)
            }
        };
        let available = descriptors.saturating_sub(sender_descriptors * fixed);
        let connections = u64::from(self.limits.connections).min((available - available / 4) / per_connection).max(1);
        self.limits.connections = connections as u32;
        let remaining = available.saturating_sub(connections * per_connection);
        let per_thread =
            remaining.checked_div(fixed).map_or(MAX_HELD_FILES_SINGLE, |per_thread| per_thread.min(MAX_HELD_FILES));
        FileCacheLimits { per_thread: per_thread as usize, total: remaining as usize }
    }
}

/// Who may ask, for what besides files, what caches are told, and where requests are logged.
#[derive(Default)]
pub struct ServerAccess {
    /// Names by which the server may be asked besides its own: see [`AllowedHosts::for_address`].
    pub names: Vec<HostName>,
    /// Who may read what it uses. That is answered at an address of its own, and nothing below `.kelvin` in the root is served then.
    /// Each connection that is tracked needs two descriptors, and so there are fewer of them.
    pub stats_access: Option<StatsAccess>,
    /// As whom files are opened and clients served, once the socket is bound.
    pub user: Option<ServerUser>,
    /// What caches are told of files.
    pub cache_rules: CacheRules,
    /// Where requests are logged.
    pub access_log: Option<Arc<AccessLog>>,
    /// With what connections are encrypted, if they are. It was read before this process becomes another user. What such a server uses
    /// is not told: that follows requests by what the kernel says of their bytes.
    pub tls: Option<Arc<TlsIdentity>>,
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    pub(crate) service: Service,
    model: ServerModel,
    /// Where it answers what it uses, if it does.
    stats: Option<StatsServer>,
    /// The process that accepts, under [`ServerModel::Fork`].
    fork_server: Option<ForkServer>,
    /// The file of its socket, if that has a path.
    _socket_file: Option<SocketFile>,
}

impl Server {
    /// Listens, and opens the root. Connections are limited to what this process may have descriptors for. Under [`ServerModel::Fork`] this
    /// starts the process that accepts and forks, which ends with the thread that called.
    ///
    /// # Errors
    /// An address that cannot be had; a root that is none; under [`ServerModel::Fork`] a process that has other threads.
    pub fn listen(address: SocketAddr, root: &Path, setup: ServerSetup, mut access: ServerAccess) -> Result<Self> {
        let names = AllowedHosts::for_address(address.ip(), std::mem::take(&mut access.names));
        Self::start(|| Listener::bind(address), root, setup, (access, names))
    }

    /// Listens at a path. Statistics are of TCP, so that nobody may have them.
    ///
    /// # Errors
    /// Those of [`Self::listen`].
    pub fn listen_unix(socket: &UnixSocket, root: &Path, setup: ServerSetup, access: ServerAccess) -> Result<Self> {
        // No page of a browser leads there.
        let names = AllowedHosts::named(access.names);
        let access = ServerAccess { names: Vec::new(), stats_access: None, ..access };
        Self::start(|| socket.bind(), root, setup, (access, names))
    }

    /// Listens at a socket that this process was given, and which others hold as well: clients who have not been accepted at the end wait
    /// for whoever serves there next. What it uses is not told.
    ///
    /// # Errors
    /// Those of [`Self::listen`].
    pub fn listen_passed(socket: OwnedFd, root: &Path, setup: ServerSetup, access: ServerAccess) -> Result<Self> {
        let listener = Listener::adopt(socket).map_err(Error::Listen)?;
        let names = match listener.socket.local_addr() {
            Ok(address) => AllowedHosts::for_address(address.ip(), access.names),
            // No page of a browser leads to a path.
            Err(_) => AllowedHosts::named(access.names),
        };
        let access = ServerAccess { names: Vec::new(), stats_access: None, ..access };
        Self::start(|| Ok(listener), root, setup, (access, names))
    }

    fn start(
        bind: impl FnOnce() -> std::io::Result<Listener>,
        root: &Path,
        mut setup: ServerSetup,
        (access, names): (ServerAccess, AllowedHosts),
    ) -> Result<Self> {
        if !setup.model.supports(setup.send_strategy) {
            let supported = STRATEGY_NAMES.iter().filter(|(_, strategy)| setup.model.supports(*strategy));
            let names = supported.map(|(name, _)| *name).collect::<Vec<_>>().join(" or ");
            return Err(Error::UnsupportedStrategy(setup.model, names));
        }
        if access.tls.is_some() {
            setup.send_strategy = setup.model.encrypting_strategy(setup.send_strategy)?;
        }
        let opened_root = access.user.is_none().then(|| DocumentRoot::open(root)).transpose()?;
        let Listener { socket: listener, file: socket_file, is_shared } = bind().map_err(Error::Listen)?;
        let listener = Arc::new(listener);
        if let Some(user) = &access.user {
            user.assume().map_err(Error::User)?;
        }
        // By the rights of that user alone.
        let root = Arc::new(opened_root.map_or_else(|| DocumentRoot::open(root), Ok)?);
        access.access_log.iter().try_for_each(|log| log.open()).map_err(Error::AccessLog)?;
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let descriptors = descriptors.saturating_sub(RESERVED_DESCRIPTORS);
        if access.stats_access.is_some() {
            let trackable = u64::from(setup.limits.connections).min(descriptors / 8 * 3).max(1);
            setup.limits.connections = trackable as u32;
        }
        let cache_limits = setup.divide_descriptors(descriptors);
        // Threads that accept at one moment may accept one more each than there may be.
        let slot_count = setup.limits.connections as usize + setup.threads;
        let sampler = access.stats_access.as_ref().map(|_| InFlightSampler::new(&listener, slot_count).map(Arc::new));
        let site = SiteConfig {
            scheme: if access.tls.is_some() { Scheme::Https } else { Scheme::Http },
            names,
            lists_directories: setup.lists_directories,
            sends_compressed: setup.sends_compressed,
            cache_rules: Arc::new(access.cache_rules),
            inline_limit: setup.send_strategy.inline_limit(),
            limits: setup.limits,
            ..SiteConfig::default()
        };
        let mut service = Service {
            listener,
            is_listener_shared: is_shared,
            root,
            site,
            threads: setup.threads,
            send_strategy: setup.send_strategy,
            files_per_thread: cache_limits.per_thread,
            file_budget: Arc::new(FileBudget::new(cache_limits.total)),
            sampler: sampler.transpose()?,
            access_log: access.access_log,
            tls: access.tls,
        };
        let is_forking = setup.model == ServerModel::Fork;
        let fork_server = is_forking.then(|| ForkServer::start(&mut service)).transpose()?;
        if setup.model == ServerModel::Uring {
            uring::new_ring()?;
            // The ring waits for what is not there only where calls would.
            service.listener.set_nonblocking(false).map_err(Error::Listen)?;
        }
        // After the fork, so that no process that serves has its socket.
        let stats = access.stats_access.map(StatsServer::listen).transpose()?;
        Ok(Self { service, model: setup.model, stats, fork_server, _socket_file: socket_file })
    }

    /// What opens its directory anew while it serves: what the path of the directory names then. Connections go on; a file of the former
    /// directory may be sent for a second more, and under [`ServerModel::Fork`] until the connections that there are have ended. The error
    /// is a path that is no directory any more: the former one is served on. The certificate and its key are read again after that.
    pub fn reopener(&self) -> impl Fn() -> Result<()> + use<> {
        let (root, tls) = (Arc::clone(&self.service.root), self.service.tls.clone());
        let fork_status = self.fork_server.as_ref().map(|server| server.status.clone());
        move || {
            root.reopen()?;
            fork_status.iter().for_each(ForkStatus::request_reopen);
            tls.iter().try_for_each(|tls| tls.reload())
        }
    }

    /// Where it answers what it uses, if it does.
    ///
    /// # Errors
    /// Those of getsockname.
    pub fn stats_address(&self) -> Result<Option<SocketAddr>> {
        self.stats.as_ref().map(|stats| stats.listener.local_addr().map_err(Error::ListenStats)).transpose()
    }

    /// Has connections that are accepted from now on send by this congestion control, instead of the one that the system has.
    ///
    /// # Errors
    /// `NotFound` for one that the kernel does not have or does not allow.
    pub fn set_congestion_control(&self, congestion_control: &str) -> std::io::Result<()> {
        kelvin_sys::net::set_congestion_control(&self.service.listener, congestion_control)
    }

    /// The address where it listens.
    ///
    /// # Errors
    /// Those of getsockname; a path instead of an address.
    pub fn address(&self) -> Result<SocketAddr> {
        self.service.listener.local_addr().map_err(Error::Listen)
    }

    /// The path where it listens, if that is no address.
    pub fn path(&self) -> Option<PathBuf> {
        listener::path_of(&self.service.listener)
    }

    /// Most connections at one time.
    pub fn max_connections(&self) -> u32 {
        self.service.site.limits.connections
    }

    /// Serves until it is to end; then no connection is accepted, and those that are there end with the answer that is being
    /// sent, or after the time for that.
    ///
    /// # Errors
    /// What kept the threads from being started.
    pub fn serve(mut self, is_over: impl Fn() -> bool) -> Result<ServerTotals> {
        let access_log = self.service.access_log.clone();
        let log_receiver = self.fork_server.as_mut().and_then(|server| server.log_receiver.take());
        if let Some(log) = &access_log {
            log.start(log_receiver)?;
        }
        let totals = self.serve_until(is_over);
        access_log.iter().for_each(|log| log.finish());
        totals
    }

    fn serve_until(mut self, is_over: impl Fn() -> bool) -> Result<ServerTotals> {
        let workers = (self.model == ServerModel::Pool).then_some(self.service.threads as u32);
        let fd_receiver = self.fork_server.as_mut().and_then(|server| server.fd_receiver.take());
        // Its threads go on until the end of this one.
        let _stats = self.stats.take().map(|stats| stats.start(&self.service, fd_receiver, workers)).transpose()?;
        match self.model {
            ServerModel::Fork => self.fork_server.map_or(Ok(ServerTotals::default()), |server| server.serve(&is_over)),
            ServerModel::Thread => ThreadServer::new(self.service).serve(is_over),
            ServerModel::Pool => ThreadServer::with_pool(self.service)?.serve(is_over),
            ServerModel::Poll => serve_when_ready::<PollSelector>(&self.service, &is_over),
            ServerModel::Epoll => serve_when_ready::<EpollSelector>(&self.service, &is_over),
            ServerModel::Uring => serve_with_workers::<UringWorker>(&self.service, &is_over),
        }
    }
}

/// Serves by threads that wait so, encrypted or not.
fn serve_when_ready<S: Selector>(service: &Service, is_over: &dyn Fn() -> bool) -> Result<ServerTotals> {
    match service.tls {
        None => serve_with_workers::<ReadinessWorker<S, PlainTransport>>(service, is_over),
        Some(_) => serve_with_workers::<ReadinessWorker<S, TlsTransport>>(service, is_over),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_cache_fit_descriptor_limit() {
        let models =
            [(ServerModel::Epoll, 2), (ServerModel::Pool, 64), (ServerModel::Pool, 1024), (ServerModel::Thread, 2)];
        for ((model, threads), sending) in
            models.into_iter().flat_map(|model| [(model, SendStrategy::Auto), (model, SendStrategy::Splice)])
        {
            for descriptors in [0, 1, 5, 5000, 20_000, 1_000_000] {
                let mut setup = ServerSetup { model, send_strategy: sending, ..ServerSetup::with_threads(threads) };
                let cache_limits = setup.divide_descriptors(descriptors);
                let connections = u64::from(setup.limits.connections);
                let holders = if model == ServerModel::Thread { connections } else { threads as u64 };
                let used_descriptors = connections + cache_limits.total as u64 + sending.descriptor_count() * holders;
                assert!(
                    connections >= 1 && (used_descriptors <= descriptors || descriptors < 20),
                    "{model} {sending} {descriptors}"
                );
            }
        }
        let mut fork_setup = ServerSetup { model: ServerModel::Fork, ..ServerSetup::with_threads(1) };
        assert_eq!(fork_setup.divide_descriptors(1000), FileCacheLimits { per_thread: 16, total: 16 });
        assert_eq!(fork_setup.limits.connections, ServerLimits::default().connections);
        assert_eq!(ServerSetup::with_threads(2).divide_descriptors(1_000_000).per_thread, 4096);
        let mut threads = ServerSetup { model: ServerModel::Thread, ..ServerSetup::with_threads(1) };
        assert_eq!(threads.divide_descriptors(1000), FileCacheLimits { per_thread: 16, total: 250 });
    }
}
