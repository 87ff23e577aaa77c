//! What host and server have used, answered on a socket of its own.
//!
//! It is not the server's socket, so that a client that holds all its connections, workers or places in its queue keeps nobody from
//! asking, and so that no such request is among those that are counted.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use kelvin_machine::resources::ProcessMonitor;
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_transfer::wire::secret::Secret;

use crate::serve::error::{Error, Result};
use crate::serve::fork::FdReceiver;
use crate::serve::host::AllowedHosts;
use crate::serve::limits::ServerLimits;
use crate::serve::listener::Listener;
use crate::serve::send_strategy::SendStrategy;
use crate::serve::site::SiteConfig;
pub use crate::serve::stats_sources::STATS_PATH;
use crate::serve::stats_sources::StatsSources;
use crate::serve::thread_server::ThreadServer;
use crate::serve::worker_context::Service;

/// Most clients at one time. One more takes the place of the first: an answer takes milliseconds, so that one is not about to get any.
const MAX_CLIENTS: u32 = 16;
/// Time for a request to come, and for a client to take anything of the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of a thread's stack: a sample needs some KiB.
const STACK_BYTES: usize = 512 << 10;

/// Who may read what a server uses, and where.
#[derive(Debug)]
pub struct StatsAccess {
    /// The address where that is answered.
    pub address: SocketAddr,
    /// The token of those who may.
    pub token: Secret,
}

/// The socket for statistics.
#[derive(Debug)]
pub(crate) struct StatsServer {
    pub(crate) listener: TcpListener,
    access: StatsAccess,
}

impl StatsServer {
    /// Listens.
    pub(crate) fn listen(access: StatsAccess) -> Result<Self> {
        Ok(Self { listener: Listener::bind(access.address).map_err(Error::ListenStats)?.socket, access })
    }

    /// Answers for a server, and has samples taken, until what is returned is dropped. The receiver gets the connections that another
    /// process serves; `workers` are the connections that the server serves at one time, if that is bounded.
    pub fn start(
        self,
        server: &Service,
        fd_receiver: Option<FdReceiver>,
        workers: Option<u32>,
    ) -> Result<StatsThreads> {
        let mut threads = StatsThreads { shutdown: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        if let Some(sampler) = &server.sampler {
            if let Some(receiver) = fd_receiver {
                let sampler = Arc::clone(sampler);
                threads.add("watch", move |shutdown| receiver.run(&sampler, shutdown))?;
            }
            let sampler = Arc::clone(sampler);
            threads.add("sample", move |shutdown| sampler.run(shutdown))?;
        }
        let sources = StatsSources {
            sampler: server.sampler.clone(),
            listener: Arc::clone(&server.listener),
            workers,
            process: Mutex::new(ProcessMonitor::current(Some(&server.root.path))),
            token: self.access.token,
        };
        let limits = ServerLimits {
            connections: MAX_CLIENTS,
            request_timeout: CLIENT_TIMEOUT,
            idle_timeout: CLIENT_TIMEOUT,
            drain_timeout: Duration::ZERO,
            ..ServerLimits::default()
        };
        let site = SiteConfig {
            names: AllowedHosts::default(),
            limits,
            stats: Some(Arc::new(sources)),
            ..server.site.clone()
        };
        let service = Service {
            listener: Arc::new(self.listener),
            is_listener_shared: false,
            site,
            send_strategy: SendStrategy::ReadWrite,
            sampler: None,
            access_log: None,
            tls: None,
            ..server.clone()
        };
        threads.add("stats", move |shutdown| {
            // It cannot be waited for connections: there are no statistics any more.
            let _ = ThreadServer::new(service).serve(|| shutdown.load(Ordering::Acquire));
        })?;
        Ok(threads)
    }
}

/// Threads that end when this is dropped.
pub(crate) struct StatsThreads {
    shutdown: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl StatsThreads {
    fn add(&mut self, name: &str, work: impl FnOnce(&AtomicBool) + Send + 'static) -> Result<()> {
        let shutdown = Arc::clone(&self.shutdown);
        let thread = ThreadBuilder::named(name).stack_bytes(STACK_BYTES).start(move || work(&shutdown));
        self.threads.push(thread.map_err(Error::SpawnThread)?);
        Ok(())
    }
}

impl Drop for StatsThreads {
    fn drop(&mut self) {
        self.shutdown.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
