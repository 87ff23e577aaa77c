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

use crate::epoll;
use crate::error::{Error, Result};
use crate::files::{Allowance, Files};
use crate::fork::{self, Board, Forking};
use crate::hall::Hall;
use crate::host::{Name, Names};
use crate::house::House;
use crate::limits::Limits;
use crate::listing::Lists;
use crate::looks::{self, Exposure, Looks, Subject};
use crate::passing::{self, Teller, Told};
use crate::root::Root;
use crate::sending::Sending;
use crate::sending::chosen::Choices;
use crate::site::{Manner, Site};
use crate::threads::{self, Threads};
use crate::uring;
use crate::watch::Watch;
use crate::words;
use kelvin_sys::spawn::Thread;

/// Connections that may wait to be accepted; the kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 4096;
/// How often it is asked whether the server is to end.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
/// How often some connections are accepted at the end: whoever waits then is served, and a crowd keeps no server from ending.
pub(crate) const LAST: usize = 64;
/// Descriptors that are neither connections nor files of the root, of which lists may have a half.
const OTHERS: u64 = 128;
/// Most files that each thread holds open.
const HELD: u64 = 4096;
/// Most files that a process or thread of one connection holds open: a client comes back to few, and there may be many of them.
const HELD_ALONE: u64 = 16;

/// Who serves connections, and how it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
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
const WORDS: [(&str, Model); 5] = [
    ("fork", Model::Fork),
    ("thread", Model::Thread),
    ("pool", Model::Pool),
    ("epoll", Model::Epoll),
    ("uring", Model::Uring),
];

impl Model {
    /// The ways of sending that it has: by a ring there is none of sendfile, and its splice waits in a thread of the kernel for each
    /// client that does not read.
    fn sendings(self) -> &'static [Sending] {
        match self {
            Self::Uring => &[Sending::Auto, Sending::ReadWrite],
            _ => &[Sending::Auto, Sending::ReadWrite, Sending::Mmap, Sending::SendFile, Sending::Splice],
        }
    }

    /// Whether it sends in this way.
    fn check(self, sending: Sending) -> Result<()> {
        let by = || self.sendings().iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        if self.sendings().contains(&sending) { Ok(()) } else { Err(Error::Sending { model: self, by: by() }) }
    }
}

impl FromStr for Model {
    type Err = String;

    fn from_str(word: &str) -> std::result::Result<Self, String> {
        words::find(&WORDS, word)
    }
}

impl fmt::Display for Model {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(words::of(&WORDS, self))
    }
}

/// How a server works.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Who serves connections.
    pub model: Model,
    /// Threads that serve, of a model that has a fixed number.
    pub threads: usize,
    /// By which calls the bytes of files go.
    pub sending: Sending,
    /// Whether directories are listed that have no index.html.
    pub lists: bool,
    /// The limits.
    pub limits: Limits,
}

impl Setup {
    /// With so many threads, and everything else as is best.
    pub fn of(threads: usize) -> Self {
        Self { model: Model::default(), threads, sending: Sending::default(), lists: false, limits: Limits::default() }
    }
}

/// How many files are held open between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holding {
    /// By each thread, at most.
    each: usize,
    /// By all threads of a process together.
    all: usize,
}

impl Setup {
    /// Limits connections to what so many descriptors allow, and says how many files may be held open between requests.
    fn share(&mut self, descriptors: u64) -> Holding {
        let own = self.sending.descriptors();
        if self.model == Model::Fork {
            // Each process has descriptors of its own.
            let all = descriptors.saturating_sub(own + 1).min(HELD_ALONE) as usize;
            return Holding { each: all, all };
        }
        let (fixed, of_each) = if self.model == Model::Thread { (0, 1 + own) } else { (self.threads.max(1) as u64, 1) };
        let free = descriptors.saturating_sub(own * fixed);
        let connections = u64::from(self.limits.connections).min((free - free / 4) / of_each).max(1);
        self.limits.connections = connections as u32;
        let left = free.saturating_sub(connections * of_each);
        let each = left.checked_div(fixed).map_or(HELD_ALONE, |each| each.min(HELD));
        Holding { each: each as usize, all: left as usize }
    }
}

impl Setup {
    /// What watches the connections of a socket. Threads that accept at one moment may accept one more each than there may be.
    fn watch(&self, listener: &TcpListener) -> Result<Arc<Watch>> {
        Watch::over(listener, self.limits.connections as usize + self.threads).map(Arc::new)
    }
}

/// Who may ask, and for what besides files.
#[derive(Default)]
pub struct Access {
    /// Names by which the server may be asked besides its own: see [`Names::of`].
    pub names: Vec<Name>,
    /// Who may look at what it uses. Looks are answered at an address of their own, and nothing below `.kelvin` in the root is
    /// served then. Each connection that is watched needs two descriptors, and so there are fewer of them.
    pub exposure: Option<Exposure>,
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: Arc<TcpListener>,
    root: Arc<Root>,
    names: Names,
    setup: Setup,
    held: Holding,
    /// Whether anybody may look at what it uses.
    is_exposed: bool,
    /// Where looks are answered, and what for.
    looks: Option<Looks>,
    watch: Option<Arc<Watch>>,
    /// The process that accepts, under [`Model::Fork`].
    forking: Option<Forking>,
    /// Where it tells of its connections, if they are watched.
    told: Option<Told>,
}

/// Opens the directory of a server anew while it serves.
#[derive(Debug)]
pub struct Reopener {
    root: Arc<Root>,
    /// What the process that forks looks at, under [`Model::Fork`].
    forking: Option<Board>,
}

impl Reopener {
    /// Opens what the path of the directory names now. Connections go on; a file of the former directory may be sent for a second more,
    /// and under [`Model::Fork`] until the connections that there are have ended.
    ///
    /// # Errors
    /// A path that is no directory any more: the former one is served on.
    pub fn reopen(&self) -> Result<()> {
        self.root.reopen()?;
        self.forking.iter().for_each(Board::ask_to_reopen);
        Ok(())
    }
}

/// What a server did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Requests that were answered, in whatever way.
    pub requests: u64,
    /// Bytes that were sent, heads included.
    pub bytes: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Connections that were turned away because there were too many.
    pub refused: u64,
    /// By which calls larger files went, if they were chosen.
    pub choices: Choices,
}

impl std::ops::Add for Served {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            bytes: self.bytes + other.bytes,
            connections: self.connections + other.connections,
            refused: self.refused + other.refused,
            choices: self.choices + other.choices,
        }
    }
}

impl Server {
    /// Listens, and opens the root. Connections are limited to what this process may have descriptors for. Under [`Model::Fork`] this
    /// starts the process that accepts and forks, which ends with the thread that called.
    ///
    /// # Errors
    /// An address that cannot be had; a root that is none; under [`Model::Fork`] a process that has other threads.
    pub fn listen(address: SocketAddr, root: &Path, setup: Setup) -> Result<Self> {
        Self::listen_with(address, root, setup, Access::default())
    }

    /// The same, for others or for more.
    ///
    /// # Errors
    /// Those of [`Self::listen`], and [`Error::ListenForLooks`].
    pub fn listen_with(address: SocketAddr, root: &Path, mut setup: Setup, access: Access) -> Result<Self> {
        let (names, exposure) = (Names::of(address.ip(), access.names), access.exposure);
        setup.model.check(setup.sending)?;
        let root = Arc::new(Root::open(root)?);
        let listener = Arc::new(bound(address).map_err(Error::Listen)?);
        let is_exposed = exposure.is_some();
        if is_exposed {
            setup.limits.connections = watched(setup.limits.connections);
        }
        let held = setup.share(descriptors().saturating_sub(OTHERS));
        let watch = exposure.as_ref().map(|_| setup.watch(&listener)).transpose()?;
        let mut server =
            Self { listener, root, names, setup, held, is_exposed, looks: None, watch, forking: None, told: None };
        if setup.model == Model::Uring {
            uring::probe()?;
            // The ring waits for what is not there only where calls would.
            server.listener.set_nonblocking(false).map_err(Error::Listen)?;
        }
        if setup.model == Model::Fork {
            let (teller, told) = server.watch.as_ref().map(|_| passing::pair()).transpose()?.unzip();
            server.forking = Some(Forking::start(server.house_of_processes(teller)?)?);
            server.told = told;
        }
        // After that, so that no process that serves has its socket.
        server.looks = exposure.map(Looks::listen).transpose()?;
        Ok(server)
    }

    /// What opens its directory anew.
    pub fn reopener(&self) -> Reopener {
        Reopener { root: Arc::clone(&self.root), forking: self.forking.as_ref().map(Forking::board) }
    }

    /// Where it answers looks, if it does.
    ///
    /// # Errors
    /// Those of getsockname.
    pub fn address_for_looks(&self) -> Result<Option<SocketAddr>> {
        self.looks.as_ref().map(Looks::address).transpose()
    }

    /// Has connections that are accepted from now on send by this congestion control, instead of the one that the system has.
    ///
    /// # Errors
    /// `NotFound` for one that the kernel does not have or does not allow.
    pub fn send_by(&self, congestion_control: &str) -> std::io::Result<()> {
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
    pub fn connections(&self) -> u32 {
        self.setup.limits.connections
    }

    /// Serves until it is to end; then no connection is accepted, and those that are there end with the answer that is being
    /// sent, or after the time for that.
    ///
    /// # Errors
    /// What kept the threads from being started.
    pub fn serve(mut self, is_over: impl Fn() -> bool) -> Result<Served> {
        let subject = Subject {
            watch: self.watch.clone(),
            told: self.told.take(),
            listener: Arc::clone(&self.listener),
            workers: (self.setup.model == Model::Pool).then_some(self.setup.threads as u32),
        };
        // They go on until its end.
        let _looks = self.looks.take().map(|looks| looks.start(subject)).transpose()?;
        self.serve_by_model(is_over)
    }

    fn serve_by_model(self, is_over: impl Fn() -> bool) -> Result<Served> {
        match self.setup.model {
            Model::Fork => self.forking.map_or(Ok(Served::default()), |forking| forking.serve(is_over)),
            Model::Epoll => self.serve_by_threads(serve_by_events, is_over),
            Model::Uring => self.serve_by_threads(serve_by_requests, is_over),
            Model::Thread => self.house().serve(Threads::Each, is_over),
            Model::Pool => self.house().serve(Threads::Pool(self.setup.threads), is_over),
        }
    }

    fn serve_by_threads(self, work: Work, is_over: impl Fn() -> bool) -> Result<Served> {
        let (house, make) = self.house_of_events()?;
        let start = |number| {
            let (house, hall) = (Arc::clone(&house), make());
            Thread::named("serve").start(move || work(number, house, hall))
        };
        let threads: std::io::Result<Vec<_>> = (0..self.setup.threads).map(start).collect();
        let goes_on = |threads: &Vec<JoinHandle<_>>| !threads.iter().any(JoinHandle::is_finished);
        while threads.as_ref().is_ok_and(goes_on) && !is_over() {
            std::thread::sleep(LOOK);
        }
        house.end(Instant::now() + self.setup.limits.drain);
        let threads = threads.map_err(Error::Thread)?;
        let mut served = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Ok(Served::default())));
        served.try_fold(Served::default(), |sum, served| Ok(sum + served?))
    }

    pub(crate) fn house_of_events(&self) -> Result<(Arc<House>, impl Fn() -> Hall)> {
        let house = House::new(Arc::clone(&self.listener), self.setup.threads, self.connections())?;
        Ok((Arc::new(house), self.halls(Lists::default())))
    }

    fn house(&self) -> threads::House<impl Fn() -> Hall + Send + Sync + Clone + 'static> {
        let (hall, listener) = (self.halls(Lists::default()), Arc::clone(&self.listener));
        let (most, watch) = (self.connections(), self.watch.clone());
        threads::House { hall, listener, most, drain: self.setup.limits.drain, watch }
    }

    fn house_of_processes(&self, teller: Option<Teller>) -> Result<fork::House<impl Fn() -> Hall + use<>>> {
        let lists = Lists::of_processes().map_err(Error::call("make a file in memory"))?;
        let (hall, listener) = (self.halls(lists), Arc::clone(&self.listener));
        let (most, watch) = (self.connections(), self.watch.clone().zip(teller));
        Ok(fork::House { hall, root: Arc::clone(&self.root), listener, most, drain: self.setup.limits.drain, watch })
    }

    /// Makes what each thread needs.
    fn halls(&self, shown: Lists) -> impl Fn() -> Hall + Send + Sync + Clone + use<> {
        let (root, held, Setup { sending, lists, limits, .. }) = (Arc::clone(&self.root), self.held, self.setup);
        let (names, shown) = (self.names.clone(), Arc::new(shown));
        let manner = Manner { names, lists, held: shown, inline: sending.inline(), limits };
        let watch = self.watch.clone();
        let reserved = self.is_exposed.then_some(looks::RESERVED);
        let allowance = Allowance::of(held.all);
        move || {
            let files = Files::new(Arc::clone(&root), held.each).sharing(Arc::clone(&allowance)).reserving(reserved);
            let mut hall = Hall::new(Site::new(files, manner.clone()), sending);
            hall.watch = watch.clone();
            hall
        }
    }
}

/// What one of several threads does until the end.
type Work = fn(usize, Arc<House>, Hall) -> Result<Served>;

fn serve_by_events(number: usize, house: Arc<House>, hall: Hall) -> Result<Served> {
    epoll::Worker::new(number, house, hall).map(epoll::Worker::serve)
}

fn serve_by_requests(number: usize, house: Arc<House>, hall: Hall) -> Result<Served> {
    uring::Worker::new(number, house, hall).map(uring::Worker::serve)
}

/// Refuses further connections.
pub(crate) fn close(listener: &TcpListener) {
    // One that is closed already refuses them, too.
    let _ = shutdown(listener, Shutdown::Both);
}

/// A socket that listens.
fn bound(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    // What is accepted has what listens has: answers are whole when they are sent, and nothing is to be waited for.
    set_tcp_nodelay(&listener, true).and_then(|()| listen(&listener, BACKLOG))?;
    Ok(listener)
}

/// Most of so many connections that can be watched.
fn watched(connections: u32) -> u32 {
    let most = descriptors().saturating_sub(OTHERS) / 8 * 3;
    u64::from(connections).min(most).max(1) as u32
}

/// Descriptors that this process may have.
fn descriptors() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_held_files_together_are_no_more_than_the_descriptors() {
        let models = [(Model::Epoll, 2), (Model::Pool, 64), (Model::Pool, 1024), (Model::Thread, 2)];
        for ((model, threads), sending) in
            models.into_iter().flat_map(|of| [(of, Sending::Auto), (of, Sending::Splice)])
        {
            for descriptors in [0, 1, 5, 5000, 20_000, 1_000_000] {
                let mut setup = Setup { model, sending, ..Setup::of(threads) };
                let held = setup.share(descriptors);
                let connections = u64::from(setup.limits.connections);
                let holders = if model == Model::Thread { connections } else { threads as u64 };
                let taken = connections + held.all as u64 + sending.descriptors() * holders;
                assert!(
                    connections >= 1 && (taken <= descriptors || descriptors < 20),
                    "{model} {sending} {descriptors}"
                );
            }
        }
        let mut alone = Setup { model: Model::Fork, ..Setup::of(1) };
        assert_eq!(alone.share(1000), Holding { each: 16, all: 16 });
        assert_eq!(alone.limits.connections, Limits::default().connections);
        assert_eq!(Setup::of(2).share(1_000_000).each, 4096);
        let mut threads = Setup { model: Model::Thread, ..Setup::of(1) };
        assert_eq!(threads.share(1000), Holding { each: 16, all: 250 });
    }
}
