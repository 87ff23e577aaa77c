//! What host and server have used, answered on a socket of its own.
//!
//! It is not the server's socket, so that a client that holds all its connections, workers or places in its queue keeps nobody from
//! asking, and so that no such request is among those that are counted.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use http::StatusCode;
use kelvin_machine::resources::ProcessMonitor;
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_transfer::wire::secret::Secret;

use crate::lock;
use crate::serve::error::{Error, Result};
use crate::serve::fork::FdReceiver;
use crate::serve::host::AllowedHosts;
use crate::serve::in_flight_sampler::InFlightSampler;
use crate::serve::limits::ServerLimits;
use crate::serve::request::HttpRequest;
use crate::serve::send_strategy::SendStrategy;
use crate::serve::server::{Service, bind_listener};
use crate::serve::site::SiteConfig;
use crate::serve::thread_server::ThreadServer;

/// The path of the statistics.
pub const STATS_PATH: &str = "/.kelvin/stats";
/// The first name of it, below which nothing of the root is served.
pub const RESERVED_NAME: &[u8] = b".kelvin";
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
        Ok(Self { listener: bind_listener(access.address).map_err(Error::ListenStats)?, access })
    }

    /// Answers for a server, and has samples taken, until what is returned is dropped. The receiver gets the connections that another
    /// process serves; `workers` are the connections that the server serves at one time, if that is bounded.
    pub(crate) fn start(
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
        let site =
            SiteConfig { names: AllowedHosts::Any, limits, stats: Some(Arc::new(sources)), ..server.site.clone() };
        let service = Service {
            listener: Arc::new(self.listener),
            site,
            send_strategy: SendStrategy::ReadWrite,
            sampler: None,
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
        let started = ThreadBuilder::named(name).stack_bytes(STACK_BYTES).start(move || work(&shutdown));
        self.threads.push(started.map_err(Error::SpawnThread)?);
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

/// What statistics are made of, and who may read them.
#[derive(Debug)]
pub struct StatsSources {
    /// What the server knows of its requests.
    sampler: Option<Arc<InFlightSampler>>,
    /// The socket that it listens on.
    listener: Arc<TcpListener>,
    workers: Option<u32>,
    process: Mutex<ProcessMonitor>,
    token: Secret,
}

impl StatsSources {
    /// What is answered to a request, as JSON.
    ///
    /// # Errors
    /// The status of an answer without statistics.
    pub fn snapshot(&self, request: &HttpRequest<'_>) -> std::result::Result<String, StatusCode> {
        if request.path != STATS_PATH {
            return Err(StatusCode::NOT_FOUND);
        }
        let token = request.fields.authorization.and_then(bearer_token);
        if !token.is_some_and(|token| self.token.matches(token.as_bytes())) {
            return Err(StatusCode::UNAUTHORIZED);
        }
        let snapshot = lock(&self.process).sample();
        let mut snapshot = snapshot.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        snapshot.server = self.sampler.as_ref().map(|sampler| sampler.snapshot(&self.listener));
        snapshot.server.iter_mut().for_each(|server| server.workers = self.workers);
        let json = kelvin_core::json::to_string(&snapshot).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        Ok(json + "\n")
    }
}

/// The token of a field `Authorization` (RFC 6750, section 2.1).
fn bearer_token(field: &str) -> Option<&str> {
    let (scheme, token) = field.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_requires_bearer_scheme() {
        assert_eq!(bearer_token("Bearer abc="), Some("abc="));
        assert_eq!(bearer_token("bearer  abc "), Some("abc"));
        for other in ["Basic abc", "Bearer", "", "abc", "Bearerabc"] {
            assert_eq!(bearer_token(other), None, "{other}");
        }
    }
}
