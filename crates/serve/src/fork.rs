//! A process for each connection: one process accepts and forks, and each of its children serves one client, with calls that wait.
//!
//! The process that forks is forked itself at the beginning, from a process of one thread, and starts none: so no child has a copy
//! of a lock that another thread held, whatever threads the program starts later. Each of them is killed when its parent ends.

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kelvin_sys::children::Children;
use kelvin_sys::clock::monotonic;
use kelvin_sys::process::{Child, Ended, fork_to_work};
use kelvin_sys::shared::Shared;
use kelvin_sys::{image, ready, terminate};

use crate::accepting::{accept_some, moderate};
use crate::blocking::attend;
use crate::counters::Slot;
use crate::error::{Error, Result};
use crate::hall::Hall;
use crate::passing::Teller;
use crate::registered::Registered;
use crate::root::Root;
use crate::sending::chosen::Choices;
use crate::server::{LAST, LOOK, Served, close};
use crate::watch::Watch;

/// How often it is looked at the end whether the last children have ended.
const END: Duration = Duration::from_millis(2);

/// What the processes tell each other.
#[derive(Clone, Debug)]
pub struct Board(Arc<Shared<[AtomicU64; 6 + Choices::WORDS]>>);

impl Board {
    fn new() -> Result<Self> {
        Shared::new().map(|shared| Self(Arc::new(shared))).map_err(Error::call("share memory with children"))
    }

    fn end(&self) {
        self.0[4].store(1, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.0[4].load(Ordering::Acquire) != 0
    }

    /// Has the process that forks open the directory anew.
    pub fn ask_to_reopen(&self) {
        self.0[5].store(1, Ordering::Release);
    }

    fn take_reopen_request(&self) -> bool {
        self.0[5].swap(0, Ordering::AcqRel) != 0
    }

    /// Adds what a process has done.
    fn add(&self, served: Served) {
        let Served { requests, bytes, connections, refused, choices } = served;
        let cells =
            self.0.iter().zip([requests, bytes, connections, refused]).chain(self.0[6..].iter().zip(choices.words()));
        for (cell, more) in cells {
            cell.fetch_add(more, Ordering::Relaxed);
        }
    }

    fn served(&self) -> Served {
        let cells = self.0.each_ref().map(|cell| cell.load(Ordering::Relaxed));
        let [requests, bytes, connections, refused, ..] = cells;
        let choices = Choices::of_words(std::array::from_fn(|word| cells[6 + word]));
        Served { requests, bytes, connections, refused, choices }
    }
}

/// What the process that forks needs.
pub struct House<H> {
    /// Makes what a child needs.
    pub hall: H,
    /// The directory that is served.
    pub root: Arc<Root>,
    /// The socket that listens, without waiting.
    pub listener: Arc<TcpListener>,
    /// Most connections at one time.
    pub most: u32,
    /// Time for them to end.
    pub drain: Duration,
    /// Where they are registered, if they are watched, and where that is told.
    pub watch: Option<(Arc<Watch>, Teller)>,
}

/// The process that forks, as its parent sees it.
#[derive(Debug)]
pub struct Forking {
    child: Option<Child>,
    board: Board,
}

impl Forking {
    /// Starts it: it accepts from now on.
    ///
    /// # Errors
    /// A process that has other threads; those of fork.
    pub fn start<H: Fn() -> Hall>(house: House<H>) -> Result<Self> {
        let threads = image::threads().map_err(Error::call("count threads"))?;
        if threads != 1 {
            return Err(Error::Threads(threads));
        }
        let board = Board::new()?;
        let own = board.clone();
        let child = fork_to_work(|| Door::new(house, own).map_or(1, Door::work)).map_err(Error::call("fork"))?;
        Ok(Self { child: Some(child), board })
    }

    /// What it shares with this process.
    pub fn board(&self) -> Board {
        self.board.clone()
    }

    /// Waits until it is to end, and until it has.
    ///
    /// # Errors
    /// That it ended otherwise.
    pub fn serve(mut self, is_over: impl Fn() -> bool) -> Result<Served> {
        while !is_over() && self.child.as_ref().is_some_and(|child| !child.has_ended()) {
            std::thread::sleep(LOOK);
        }
        self.board.end();
        let ended = self.child.take().map(Child::wait).transpose().map_err(Error::call("wait for a child"))?;
        match ended {
            None | Some(Ended::Exited(0)) => Ok(self.board.served()),
            Some(Ended::Exited(_)) => Err(Error::Ended("failed".into())),
            Some(Ended::Signalled(signal)) => Err(Error::Ended(format!("was ended by signal {signal}"))),
        }
    }
}

impl Drop for Forking {
    fn drop(&mut self) {
        // Its own children end with it.
        self.child.iter().for_each(Child::kill);
    }
}

/// The process that forks.
struct Door<H> {
    house: House<H>,
    board: Board,
    children: Children,
    /// The slots of those children whose connections are watched.
    slots: HashMap<i32, Slot>,
}

impl<H: Fn() -> Hall> Door<H> {
    fn new(house: House<H>, board: Board) -> kelvin_sys::Result<Self> {
        terminate::watch()?;
        Ok(Self { house, board, children: Children::none()?, slots: HashMap::new() })
    }

    /// Serves until it is to end: its exit status.
    fn work(mut self) -> u8 {
        let mut door = (self.house.hall)();
        while !self.is_over() {
            match ready::readable(self.house.listener.as_fd(), LOOK) {
                Ok(true) => drop(self.accept(&mut door)),
                Ok(false) => {}
                Err(_) => return 1,
            }
            self.reap();
            if self.board.take_reopen_request() {
                // The parent has told whether its own could be opened.
                let _ = self.house.root.reopen();
            }
            door.let_go(Instant::now());
        }
        for _ in 0..LAST {
            if !self.accept(&mut door) {
                break;
            }
        }
        close(&self.house.listener);
        self.end();
        self.board.add(door.take_served());
        0
    }

    fn is_over(&self) -> bool {
        self.board.is_over() || terminate::is_requested().load(Ordering::Acquire)
    }

    fn accept(&mut self, door: &mut Hall) -> bool {
        let listener = Arc::clone(&self.house.listener);
        accept_some(&listener, door, |socket, door| self.admit(socket, door))
    }

    /// Has a child serve a connection; it comes back if none can.
    fn admit(&mut self, socket: OwnedFd, door: &mut Hall) -> Option<OwnedFd> {
        let connections = self.reap();
        if connections >= self.house.most as usize {
            return Some(socket);
        }
        moderate(&socket, connections);
        let (slot, socket) = (self.register(&socket), Arc::new(socket));
        let Self { house, board, children, .. } = self;
        let forked = children.fork(|| {
            // Copies of what belongs to others.
            door.let_all_go();
            attend_alone((&socket, slot.clone()), (house.hall)(), board)
        });
        if let Ok(child) = forked {
            door.served.connections += 1;
            slot.and_then(|slot| self.slots.insert(child, slot));
            return None;
        }
        slot.iter().for_each(|slot| self.leave(slot));
        Arc::into_inner(socket)
    }

    /// Registers a connection, if they are watched.
    fn register(&self, socket: &OwnedFd) -> Option<Slot> {
        let (watch, teller) = self.house.watch.as_ref()?;
        let slot = watch.take_slot()?;
        let _ = teller.enter(slot.number(), socket);
        Some(slot)
    }

    /// Says that a connection is gone. What a child has not counted to its end, because it was killed, ends now.
    fn leave(&self, slot: &Slot) {
        slot.leave(monotonic());
        if let Some((watch, teller)) = &self.house.watch {
            let _ = teller.leave(slot.number());
            watch.free_slot(slot.number());
        }
    }

    /// Reaps children that have ended, and says how many are left.
    fn reap(&mut self) -> usize {
        let mut ended = Vec::new();
        let left = self.children.reap(|child| ended.push(child));
        let slots: Vec<Slot> = ended.iter().filter_map(|child| self.slots.remove(child)).collect();
        slots.iter().for_each(|slot| self.leave(slot));
        left
    }

    /// Has all clients that wait for a request end, and waits for the others, at the longest so long; who is left then is dropped.
    fn end(&mut self) {
        let until = Instant::now() + self.house.drain;
        self.children.ask_to_end();
        while self.reap() > 0 && Instant::now() < until {
            std::thread::sleep(END);
        }
    }
}

/// Serves a client, in a process of its own: its exit status.
fn attend_alone((socket, slot): (&Arc<OwnedFd>, Option<Slot>), mut hall: Hall, board: &Board) -> u8 {
    let receiving = terminate::Receiving::on(socket);
    let registered = slot.map(|slot| Registered::new(slot, Arc::clone(socket), None));
    attend((socket, registered), &mut hall, terminate::is_requested());
    drop(receiving);
    board.add(hall.take_served());
    0
}
