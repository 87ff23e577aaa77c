//! The cells of the study of transfers, and how each is carried out.

use std::time::Duration;

use kelvin_catalogue::transfer::{
    self, BUFFER, Connection, EQUAL_BYTES, Files, Mode, PUBLISHED_BUFFER, Receiver, Reply, Sender, Setting, WINDOW,
    best, cell, usual_mode,
};
use kelvin_harness::{Effort, Stop};
use kelvin_model::Case;
use kelvin_sys::mapping::page_bytes;
use kelvin_transfer::bare::{self, KernelMethod, KernelSetup, Limits, Receiving, Sending};
use kelvin_transfer::moving::{self, ReceiveMethod, ReceiveSetup, SendMethod, SendSetup};

use super::ends::{Receives, Sends};

/// The ends of the published cells.
const SENDERS: [Sender; 2] = [Sender::ReadWrite, Sender::Mmap];
const RECEIVERS: [Receiver; 2] = [Receiver::ReadWrite, Receiver::Mmap];
/// How long an end may be silent: longer than any pause of a machine that works.
const PATIENCE: Duration = Duration::from_secs(30);

/// Each published sender with each published receiver.
fn ends() -> impl Iterator<Item = (Sender, Receiver)> {
    SENDERS.iter().flat_map(|&sender| RECEIVERS.iter().map(move |&receiver| (sender, receiver)))
}

fn published() -> impl Iterator<Item = Case> {
    let [narrow, wide] = EQUAL_BYTES.map(|(window, _)| window);
    let connections = [(Connection::PerFile, narrow), (Connection::PerFile, wide), (Connection::Persistent, wide)];
    connections.into_iter().flat_map(|(connection, window)| {
        let setting = Setting { connection, window, buffer: PUBLISHED_BUFFER };
        ends().map(move |(sender, receiver)| cell(sender, receiver, setting))
    })
}

/// The same ends with as many bytes of a call by either method. Where both map, the buffer is of no use, and the larger window is
/// among the published cells.
fn equal_bytes() -> impl Iterator<Item = Case> {
    EQUAL_BYTES.into_iter().flat_map(|(window, buffer)| {
        let setting = Setting { connection: Connection::Persistent, window, buffer };
        let is_new =
            move |&ends: &(Sender, Receiver)| ends != (Sender::Mmap, Receiver::Mmap) || window == EQUAL_BYTES[0].0;
        ends().filter(is_new).map(move |(sender, receiver)| cell(sender, receiver, setting))
    })
}

/// The best cell with one other factor each. The method `uring` has only the mode `uring`, in which the best cell is there too.
fn one_at_a_time() -> Vec<Case> {
    let mut cells = vec![best().at(Connection::PerFile), best().at(Reply::PerFile)];
    cells.extend([Mode::Nonblocking, Mode::Signal, Mode::Uring].map(|mode| best().at(mode)));
    cells.extend([Sender::Sendfile, Sender::Splice, Sender::ZeroCopy].map(|sender| best().at(sender)));
    cells.push(best().at(Sender::Uring).at(Mode::Uring));
    cells.push(best().at(Receiver::Splice));
    cells.push(best().at(Receiver::Uring).at(Mode::Uring));
    cells
}

/// The published cells as they were, with both ends in the kernel: those that block, and those that were called asynchronous.
fn in_kernel() -> Vec<Case> {
    let blocking: Vec<Case> = published().filter_map(|cell| transfer::in_kernel(&cell)).collect();
    let wide =
        |cell: &&Case| Connection::of(cell) == Some(Connection::PerFile) && WINDOW.of(cell) == Some(EQUAL_BYTES[1].0);
    let asynchronous = blocking.iter().filter(wide).map(|cell| cell.clone().at(Mode::Fasync)).collect::<Vec<_>>();
    blocking.into_iter().chain(asynchronous).collect()
}

/// All buffers and windows of this study.
const BUFFERS: [u64; 3] = [PUBLISHED_BUFFER, EQUAL_BYTES[0].1, EQUAL_BYTES[1].1];
const WINDOWS: [u64; 2] = [EQUAL_BYTES[0].0, EQUAL_BYTES[1].0];

/// Every combination of ends that are processes with every other factor, as far as it makes sense and makes a difference: a window
/// only where an end maps one, a buffer only where an end does not.
pub(crate) fn all_combinations() -> Vec<Case> {
    let mut cells = Vec::new();
    for (sender, receiver) in Sender::OF_PROCESSES
        .into_iter()
        .flat_map(|sender| Receiver::OF_PROCESSES.map(move |receiver| (sender, receiver)))
    {
        let windows = if sender.maps() || receiver.maps() { &WINDOWS[..] } else { &WINDOWS[..1] };
        let buffers = if sender.maps() && receiver.maps() { &BUFFERS[..1] } else { &BUFFERS[..] };
        for (&window, &buffer) in windows.iter().flat_map(|window| buffers.iter().map(move |buffer| (window, buffer))) {
            for connection in [Connection::PerFile, Connection::Persistent] {
                let cell = cell(sender, receiver, Setting { connection, window, buffer });
                cells.extend(
                    MODES_OF_PROCESSES
                        .iter()
                        .flat_map(|&mode| [Reply::None, Reply::PerFile].map(|reply| cell.clone().at(mode).at(reply))),
                );
            }
        }
    }
    let mut all = over_all_sets(&cells);
    all.retain(makes_sense);
    all
}

const MODES_OF_PROCESSES: [Mode; 4] = [Mode::Blocking, Mode::Nonblocking, Mode::Signal, Mode::Uring];

/// Whether both ends can be set up so.
fn makes_sense(case: &Case) -> bool {
    let Ok(cell) = Cell::of(case) else { return false };
    cell.of_processes().is_some_and(|(sending, receiving)| sending.setup.check().and(receiving.setup.check()).is_ok())
}

/// Cells over all sets of files.
fn over_all_sets(cells: &[Case]) -> Vec<Case> {
    Files::ALL.iter().flat_map(|&set| cells.iter().map(move |cell| cell.clone().at(set))).collect()
}

/// The cells of files in memory: the published ones, then those that vary the other factors, then the published ones in the kernel.
pub(super) fn hot(effort: Effort) -> Vec<Case> {
    let mut cells: Vec<Case> = published().collect();
    if effort > Effort::Quick {
        cells.extend(equal_bytes().chain(one_at_a_time()));
    }
    cells.extend(in_kernel());
    over_all_sets(&cells)
}

/// The cells of files that are not in memory: every sender, since only it reads them; a quick study has the usual one.
pub(super) fn cold(effort: Effort) -> Vec<Case> {
    let of = |&sender: &Sender| best().at(sender).at(usual_mode(sender));
    let senders = if effort == Effort::Quick { &SENDERS[..1] } else { &Sender::OF_PROCESSES[..] };
    over_all_sets(&senders.iter().map(of).collect::<Vec<_>>())
}

/// A case as it is carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub set: Files,
    pub sending: Sends,
    pub receiving: Receives,
}

impl Cell {
    pub(super) fn of(case: &Case) -> Result<Self, Stop> {
        let unknown = || Stop::fail(format!("no such transfer: {case}"));
        let set = Files::of(case).ok_or_else(unknown)?;
        let (sender, receiver) = Sender::of(case).zip(Receiver::of(case)).ok_or_else(unknown)?;
        let (window, buffer) = WINDOW.of(case).zip(BUFFER.of(case)).ok_or_else(unknown)?;
        let connection = match Connection::of(case).ok_or_else(unknown)? {
            Connection::PerFile => bare::Connection::PerFile,
            Connection::Persistent => bare::Connection::Persistent,
        };
        let reply = Reply::of(case).ok_or_else(unknown)? == Reply::PerFile;
        let mode = Mode::of(case).ok_or_else(unknown)?;
        let amount = Amount { window: window as usize, buffer: buffer as usize, mode };
        let [(files, bytes), small] = [set, Files::Small].map(Files::amount);
        let limits = Limits { files: files.max(small.0), bytes: bytes.max(small.1) };
        let sending = amount.send(sender).ok_or_else(unknown)?.over(connection, reply);
        let receiving = amount.receive(receiver).ok_or_else(unknown)?.over(connection, limits);
        Ok(Self { set, sending, receiving })
    }

    /// Both ends, where neither is in the kernel.
    pub(super) fn of_processes(&self) -> Option<(&Sending, &Receiving)> {
        match (&self.sending, &self.receiving) {
            (Sends::Process(sending), Receives::Process(receiving)) => Some((sending, receiving)),
            _ => None,
        }
    }
}

/// How an end moves bytes: by a socket of its own, or by one in the kernel.
enum Setup<Own> {
    Own(Own),
    Kernel(KernelSetup),
}

impl Setup<SendSetup> {
    fn over(self, connection: bare::Connection, reply: bool) -> Sends {
        match self {
            Self::Own(setup) => Sends::Process(Sending { setup, connection, reply, digest: false }),
            Self::Kernel(setup) => Sends::Kernel(Sending { setup, connection, reply, digest: false }),
        }
    }
}

impl Setup<ReceiveSetup> {
    fn over(self, connection: bare::Connection, limits: Limits) -> Receives {
        match self {
            Self::Own(setup) => Receives::Process(Receiving { setup, connection, limits }),
            Self::Kernel(setup) => Receives::Kernel(Receiving { setup, connection, limits }),
        }
    }
}

/// What both ends have in common: how much a call moves, and how it waits.
#[derive(Clone, Copy, Debug)]
struct Amount {
    /// Pages.
    window: usize,
    /// Bytes.
    buffer: usize,
    mode: Mode,
}

impl Amount {
    /// `None` for a mode that the method does not have.
    fn send(self, sender: Sender) -> Option<Setup<SendSetup>> {
        let method = match sender {
            Sender::ReadWrite => SendMethod::ReadWrite,
            Sender::Mmap => SendMethod::Mmap,
            Sender::Sendfile => SendMethod::Sendfile,
            Sender::Splice => SendMethod::Splice,
            Sender::ZeroCopy => SendMethod::ZeroCopy,
            Sender::Uring => SendMethod::Uring,
            Sender::KernelReadWrite => return self.in_kernel(KernelMethod::ReadWrite).map(Setup::Kernel),
            Sender::KernelMmap => return self.in_kernel(KernelMethod::Mmap).map(Setup::Kernel),
        };
        let (mode, buffer) = (self.of_a_process()?, self.of_a_call(sender.maps()));
        Some(Setup::Own(SendSetup { method, mode, buffer, window: self.window, patience: PATIENCE }))
    }

    /// As [`Self::send`].
    fn receive(self, receiver: Receiver) -> Option<Setup<ReceiveSetup>> {
        let method = match receiver {
            Receiver::ReadWrite => ReceiveMethod::ReadWrite,
            Receiver::Mmap => ReceiveMethod::Mmap,
            Receiver::Splice => ReceiveMethod::Splice,
            Receiver::Uring => ReceiveMethod::Uring,
            Receiver::KernelReadWrite => return self.in_kernel(KernelMethod::ReadWrite).map(Setup::Kernel),
            Receiver::KernelMmap => return self.in_kernel(KernelMethod::Mmap).map(Setup::Kernel),
        };
        let (mode, buffer) = (self.of_a_process()?, self.of_a_call(receiver.maps()));
        Some(Setup::Own(ReceiveSetup { method, mode, buffer, window: self.window, patience: PATIENCE }))
    }

    fn of_a_process(self) -> Option<moving::Mode> {
        match self.mode {
            Mode::Blocking => Some(moving::Mode::Blocking),
            Mode::Nonblocking => Some(moving::Mode::Nonblocking),
            Mode::Signal => Some(moving::Mode::Signal),
            Mode::Uring => Some(moving::Mode::Uring),
            Mode::Fasync => None,
        }
    }

    fn in_kernel(self, method: KernelMethod) -> Option<KernelSetup> {
        let is_asynchronous = match self.mode {
            Mode::Blocking => false,
            Mode::Fasync => true,
            Mode::Nonblocking | Mode::Signal | Mode::Uring => return None,
        };
        Some(KernelSetup { method, is_asynchronous, buffer: self.buffer, window: self.window })
    }

    /// A window is moved by one call.
    fn of_a_call(self, is_mapped: bool) -> usize {
        if is_mapped { self.window * page_bytes() } else { self.buffer }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_quick_study_has_the_published_cells_and_a_whole_one_every_method_and_mode() {
        let quick = hot(Effort::Quick);
        assert_eq!(quick.len(), 3 * (12 + 16));
        assert!(quick.iter().all(|case| BUFFER.of(case) == Some(512) && Reply::of(case) == Some(Reply::None)));
        let whole = hot(Effort::Default);
        assert_eq!(whole.iter().collect::<BTreeSet<_>>().len(), 3 * (12 + 7 + 11 + 16));
        let words = |of: fn(&Case) -> Option<&'static str>| whole.iter().filter_map(of).collect::<BTreeSet<_>>().len();
        assert_eq!(words(|case| Sender::AXIS.word_of(case)), Sender::ALL.len());
        assert_eq!(words(|case| Receiver::AXIS.word_of(case)), Receiver::ALL.len());
        assert_eq!(words(|case| Mode::AXIS.word_of(case)), Mode::ALL.len());
        assert_eq!(cold(Effort::Quick).len(), 3);
        assert_eq!(cold(Effort::Default).len(), 3 * Sender::OF_PROCESSES.len());
        assert!(cold(Effort::Default).iter().all(|case| whole.contains(case)), "cold beside hot");
    }

    #[test]
    fn every_cell_makes_sense_at_both_ends() {
        for case in hot(Effort::Default) {
            let cell = Cell::of(&case).unwrap();
            let Some((sending, receiving)) = cell.of_processes() else {
                assert!(transfer::has_kernel_end(&case), "{case}");
                continue;
            };
            assert_eq!((sending.setup.check(), receiving.setup.check()), (Ok(()), Ok(())), "{case}");
            assert_eq!(sending.setup.mode, receiving.setup.mode);
        }
        assert!(Cell::of(&Case::new().at(Files::One)).is_err());
    }

    #[test]
    fn both_ends_of_a_published_cell_are_in_the_kernel_and_only_there_is_fasync() {
        let cells: Vec<Case> = hot(Effort::Quick).into_iter().filter(transfer::has_kernel_end).collect();
        assert_eq!(cells.len(), 3 * 16);
        for case in &cells {
            let (Sends::Kernel(sending), Receives::Kernel(receiving)) =
                (Cell::of(case).unwrap().sending, Cell::of(case).unwrap().receiving)
            else {
                panic!("an end of its own: {case}")
            };
            let is_asynchronous = Mode::of(case) == Some(Mode::Fasync);
            assert_eq!([sending.setup, receiving.setup].map(|setup| setup.is_asynchronous), [is_asynchronous; 2]);
            assert_eq!((sending.setup.buffer, sending.setup.window as u64), (512, WINDOW.of(case).unwrap()));
        }
        assert_eq!(cells.iter().filter(|case| Mode::of(case) == Some(Mode::Fasync)).count(), 3 * 4);
        assert!(Cell::of(&best().at(Files::One).at(Mode::Fasync)).is_err());
        assert!(Cell::of(&cells[0].clone().at(Mode::Signal)).is_err());
    }

    #[test]
    fn all_combinations_make_sense_differ_and_hold_every_cell_of_processes() {
        let all = all_combinations();
        let different: BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        // A buffer that no end uses is the published one: the control of a window is not among them.
        let is_control = |case: &Case| {
            let maps = Sender::of(case).is_some_and(Sender::maps) || Receiver::of(case).is_some_and(Receiver::maps);
            !maps && WINDOW.of(case) != Some(WINDOWS[0])
        };
        let usual =
            hot(Effort::Default).into_iter().filter(|case| !transfer::has_kernel_end(case) && !is_control(case));
        for case in usual {
            let both_map =
                Sender::of(&case).is_some_and(Sender::maps) && Receiver::of(&case).is_some_and(Receiver::maps);
            assert!(both_map || different.contains(&case), "{case}");
        }
        // Blocking, nonblocking and by signals 5 senders and 3 receivers, in a ring 5 and 4; of each pair the connection and the reply,
        // and 3 buffers, or 2 windows as well, or 2 windows alone.
        let of_mode = |senders: usize, receivers: usize| {
            let (one_maps, both_map) = ((senders - 1) + (receivers - 1), 1);
            let none_maps = senders * receivers - one_maps - both_map;
            4 * (3 * none_maps + 6 * one_maps + 2 * both_map)
        };
        assert_eq!(all.len(), 3 * (3 * of_mode(5, 3) + of_mode(5, 4)));
    }

    #[test]
    fn one_factor_is_varied_at_a_time() {
        let differing = |case: &Case| case.iter().filter(|(axis, value)| best().get(axis) != Some(*value)).count();
        assert_eq!(differing(&best()), 0);
        let ring = |case: &&Case| Mode::of(case) == Some(Mode::Uring);
        assert!(one_at_a_time().iter().filter(|case| !ring(case)).all(|case| differing(case) == 1));
        assert_eq!(one_at_a_time().iter().filter(ring).map(differing).collect::<Vec<_>>(), [1, 2, 2]);
    }

    #[test]
    fn a_window_is_moved_by_one_call_and_a_buffer_as_it_is_given() {
        let setting = Setting { connection: Connection::PerFile, window: 16, buffer: PUBLISHED_BUFFER };
        let of = |sender, receiver| {
            let cell = Cell::of(&cell(sender, receiver, setting).at(Files::One)).unwrap();
            let (sending, receiving) = cell.of_processes().unwrap();
            (sending.setup, receiving.setup)
        };
        let page = page_bytes();
        let (sending, receiving) = of(Sender::Mmap, Receiver::ReadWrite);
        assert_eq!((sending.buffer, sending.window, receiving.buffer), (16 * page, 16, 512));
        assert_eq!(of(Sender::ReadWrite, Receiver::Mmap).1.buffer, 16 * page);
    }
}
