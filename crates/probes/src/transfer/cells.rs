//! The cells of the study of transfers, and how each is carried out.

use std::time::Duration;

use kelvin_core::catalogue::transfer::{
    self, BUFFER, CellSetting, ConnectionPolicy, EQUAL_CALL_SIZES, PUBLISHED_BUFFER, ReceiverMethod, ReplyPolicy,
    SenderMethod, TransferFiles, WINDOW, WaitMode, best_cell, cell, usual_mode,
};
use kelvin_sys::mapping::page_bytes;
use kelvin_transfer::datapath::{Mode, PathSetup, ReceiveMethod, SendMethod};
use kelvin_transfer::message::ConnectionLifetime;
use kelvin_transfer::raw_protocol::{RawReceiveLimits, RawReceiveOptions, RawSendOptions};

use super::endpoints::{End, ReceiverEnd, SenderEnd};
use crate::cases::IncompleteCase;
use crate::prelude::*;

/// The ends of the published cells.
const PUBLISHED_SENDERS: [SenderMethod; 2] = [SenderMethod::ReadWrite, SenderMethod::Mmap];
const PUBLISHED_RECEIVERS: [ReceiverMethod; 2] = [ReceiverMethod::ReadWrite, ReceiverMethod::Mmap];
/// How long an end may be silent: longer than any pause of a machine that works.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// Each published sender with each published receiver.
fn published_ends(setting: CellSetting) -> Vec<Case> {
    let cell = cell(SenderMethod::ReadWrite, ReceiverMethod::ReadWrite, setting);
    vec![cell].words(&PUBLISHED_SENDERS).words(&PUBLISHED_RECEIVERS)
}

fn published_cells() -> Vec<Case> {
    let [small_window, large_window] = EQUAL_CALL_SIZES.map(|(window, _)| window);
    let connections = [
        (ConnectionPolicy::PerFile, small_window),
        (ConnectionPolicy::PerFile, large_window),
        (ConnectionPolicy::Persistent, large_window),
    ];
    let cells_of = |(connection, window)| published_ends(CellSetting { connection, window, buffer: PUBLISHED_BUFFER });
    connections.map(cells_of).concat()
}

/// Those ends with as many bytes of a call by either method. Where both map, the buffer is of no use, and the larger window is
/// among the published cells.
fn equal_bytes_cells() -> Vec<Case> {
    let [small_window_cells, large_window_cells] = EQUAL_CALL_SIZES.map(|(window, buffer)| {
        published_ends(CellSetting { connection: ConnectionPolicy::Persistent, window, buffer })
    });
    let has_mappings = |case: &Case| {
        SenderMethod::of(case) == Some(SenderMethod::Mmap) && ReceiverMethod::of(case) == Some(ReceiverMethod::Mmap)
    };
    small_window_cells.into_iter().chain(large_window_cells.into_iter().filter(|case| !has_mappings(case))).collect()
}

/// The best cell with one other factor each. The method `uring` has only the mode `uring`, in which the best cell is there too.
fn single_factor_cells() -> Vec<Case> {
    let best = || vec![best_cell()];
    [
        best().words(&[ConnectionPolicy::PerFile]),
        best().words(&[ReplyPolicy::PerFile]),
        best().words(&[WaitMode::Nonblocking, WaitMode::Signal, WaitMode::Uring]),
        best().words(&[SenderMethod::Sendfile, SenderMethod::Splice, SenderMethod::ZeroCopy]),
        best().words(&[SenderMethod::Uring]).words(&[WaitMode::Uring]),
        best().words(&[ReceiverMethod::Splice]),
        best().words(&[ReceiverMethod::Uring]).words(&[WaitMode::Uring]),
    ]
    .concat()
}

/// The published cells as they were, with both ends in the kernel: those that block, and those that were called asynchronous.
fn kernel_cells() -> Vec<Case> {
    let blocking: Vec<Case> = published_cells().iter().filter_map(transfer::with_kernel_ends).collect();
    let has_large_window = |cell: &&Case| {
        ConnectionPolicy::of(cell) == Some(ConnectionPolicy::PerFile)
            && WINDOW.number_in(cell) == Some(EQUAL_CALL_SIZES[1].0)
    };
    let asynchronous = blocking
        .iter()
        .filter(has_large_window)
        .map(|cell| cell.clone().with_word(WaitMode::Fasync))
        .collect::<Vec<_>>();
    blocking.into_iter().chain(asynchronous).collect()
}

/// All buffers and windows of this study.
const STUDY_BUFFERS: [u64; 3] = [PUBLISHED_BUFFER, EQUAL_CALL_SIZES[0].1, EQUAL_CALL_SIZES[1].1];
const STUDY_WINDOWS: [u64; 2] = [EQUAL_CALL_SIZES[0].0, EQUAL_CALL_SIZES[1].0];

/// Every combination of ends that are processes with every other factor, as far as it makes sense and makes a difference: a window
/// only where an end maps one, a buffer only where an end does not.
pub(crate) fn all_combinations() -> Vec<Case> {
    let mut cells = Vec::new();
    for sender in SenderMethod::USER_SPACE {
        for receiver in ReceiverMethod::USER_SPACE {
            let (windows, buffers) = match (sender.is_mapping(), receiver.is_mapping()) {
                (true, true) => (&STUDY_WINDOWS[..], &STUDY_BUFFERS[..1]),
                (false, false) => (&STUDY_WINDOWS[..1], &STUDY_BUFFERS[..]),
                _ => (&STUDY_WINDOWS[..], &STUDY_BUFFERS[..]),
            };
            let ends = words(&[sender]).words(&[receiver]).numbers(WINDOW, windows).numbers(BUFFER, buffers);
            cells.extend(ends.words(ConnectionPolicy::ALL).words(&PROCESS_MODES).words(ReplyPolicy::ALL));
        }
    }
    let mut cases = for_all_file_sets(&cells);
    // What both ends can be set up for.
    cases.retain(|case| {
        let cell = Cell::from_case(case).ok();
        let ends = cell.as_ref().and_then(Cell::process_ends);
        ends.is_some_and(|(sending, receiving)| sending.setup.check().and(receiving.setup.check()).is_ok())
    });
    cases
}

const PROCESS_MODES: [WaitMode; 4] = [WaitMode::Blocking, WaitMode::Nonblocking, WaitMode::Signal, WaitMode::Uring];

/// Cells over all sets of files.
fn for_all_file_sets(cells: &[Case]) -> Vec<Case> {
    TransferFiles::ALL.iter().flat_map(|&set| cells.iter().map(move |cell| cell.clone().with_word(set))).collect()
}

/// The cells of files in memory: the published ones, then those that vary the other factors, then the published ones in the kernel.
pub(super) fn hot_cells(effort: Effort) -> Vec<Case> {
    let mut cells = published_cells();
    if effort > Effort::Quick {
        cells.extend([equal_bytes_cells(), single_factor_cells()].concat());
    }
    cells.extend(kernel_cells());
    for_all_file_sets(&cells)
}

/// The cells of files that are not in memory: every sender, since only it reads them; a quick study has the usual one.
pub(super) fn cold_cells(effort: Effort) -> Vec<Case> {
    let cell_of = |&sender: &SenderMethod| best_cell().with_word(sender).with_word(usual_mode(sender));
    let senders = if effort == Effort::Quick { &PUBLISHED_SENDERS[..1] } else { &SenderMethod::USER_SPACE[..] };
    for_all_file_sets(&senders.iter().map(cell_of).collect::<Vec<_>>())
}

/// A case as it is carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub set: TransferFiles,
    pub sending: SenderEnd,
    pub receiving: ReceiverEnd,
}

impl Cell {
    pub(super) fn from_case(case: &Case) -> Result<Self, IncompleteCase> {
        let set = required(TransferFiles::of(case), case)?;
        let connection = match required(ConnectionPolicy::of(case), case)? {
            ConnectionPolicy::PerFile => ConnectionLifetime::PerFile,
            ConnectionPolicy::Persistent => ConnectionLifetime::Persistent,
        };
        let reply = required(ReplyPolicy::of(case), case)? == ReplyPolicy::PerFile;
        let call = CallSpec {
            window: required_number(WINDOW, case)? as usize,
            buffer: required_number(BUFFER, case)? as usize,
            mode: required(WaitMode::of(case), case)?,
        };
        let [(files, bytes), small_set] = [set, TransferFiles::Small].map(TransferFiles::count_and_bytes);
        let limits = RawReceiveLimits { files: files.max(small_set.0), bytes: bytes.max(small_set.1) };
        let (sender, receiver) = (required(SenderMethod::of(case), case)?, required(ReceiverMethod::of(case), case)?);
        let sending = required(call.sender_end(sender, connection, reply), case)?;
        let receiving = required(call.receiver_end(receiver, connection, limits), case)?;
        Ok(Self { set, sending, receiving })
    }

    /// Both ends, where neither is in the kernel.
    pub(super) fn process_ends(&self) -> Option<(&RawSendOptions, &RawReceiveOptions)> {
        match (&self.sending, &self.receiving) {
            (SenderEnd::Process(sending), ReceiverEnd::Process(receiving)) => Some((sending, receiving)),
            _ => None,
        }
    }
}

/// What both ends have in common: how much a call moves, and how it waits.
#[derive(Clone, Copy, Debug)]
struct CallSpec {
    /// Pages.
    window: usize,
    /// Bytes.
    buffer: usize,
    mode: WaitMode,
}

impl CallSpec {
    /// `None` for a mode that the method does not have.
    fn sender_end(self, sender: SenderMethod, connection: ConnectionLifetime, reply: bool) -> Option<SenderEnd> {
        let method = match sender {
            SenderMethod::ReadWrite | SenderMethod::KernelReadWrite => SendMethod::ReadWrite,
            SenderMethod::Mmap | SenderMethod::KernelMmap => SendMethod::Mmap,
            SenderMethod::Sendfile => SendMethod::Sendfile,
            SenderMethod::Splice => SendMethod::Splice,
            SenderMethod::ZeroCopy => SendMethod::ZeroCopy,
            SenderMethod::Uring => SendMethod::Uring,
        };
        let is_in_kernel = !SenderMethod::USER_SPACE.contains(&sender);
        let setup = self.path_setup(method, sender.is_mapping(), is_in_kernel)?;
        Some(self.end(RawSendOptions { setup, connection, reply, digest: false }, is_in_kernel))
    }

    /// `None` for a mode that the method does not have.
    fn receiver_end(
        self,
        receiver: ReceiverMethod,
        connection: ConnectionLifetime,
        limits: RawReceiveLimits,
    ) -> Option<ReceiverEnd> {
        let method = match receiver {
            ReceiverMethod::ReadWrite | ReceiverMethod::KernelReadWrite => ReceiveMethod::ReadWrite,
            ReceiverMethod::Mmap | ReceiverMethod::KernelMmap => ReceiveMethod::Mmap,
            ReceiverMethod::Splice => ReceiveMethod::Splice,
            ReceiverMethod::Uring => ReceiveMethod::Uring,
        };
        let is_in_kernel = !ReceiverMethod::USER_SPACE.contains(&receiver);
        let setup = self.path_setup(method, receiver.is_mapping(), is_in_kernel)?;
        Some(self.end(RawReceiveOptions { setup, connection, limits }, is_in_kernel))
    }

    /// An end with these options.
    fn end<T>(self, options: T, is_in_kernel: bool) -> End<T> {
        if is_in_kernel { End::Kernel(options, self.mode == WaitMode::Fasync) } else { End::Process(options) }
    }

    /// What a process has in common with a device, whose calls block, with O_ASYNC or without; `None` for a mode that it does not have.
    fn path_setup<M>(self, method: M, is_mapping: bool, is_in_kernel: bool) -> Option<PathSetup<M>> {
        let mode = match self.mode {
            WaitMode::Blocking => Mode::Blocking,
            WaitMode::Fasync if is_in_kernel => Mode::Blocking,
            WaitMode::Nonblocking if !is_in_kernel => Mode::Nonblocking,
            WaitMode::Signal if !is_in_kernel => Mode::Signal,
            WaitMode::Uring if !is_in_kernel => Mode::Uring,
            _ => return None,
        };
        // A process moves a window by one call.
        let buffer = if is_mapping && !is_in_kernel { self.window * page_bytes() } else { self.buffer };
        Some(PathSetup { method, mode, buffer, window: self.window, timeout: END_TIMEOUT })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn studies_cover_cells_by_effort() {
        let quick = hot_cells(Effort::Quick);
        assert_eq!(quick.len(), 3 * (12 + 16));
        assert!(
            quick
                .iter()
                .all(|case| BUFFER.number_in(case) == Some(512) && ReplyPolicy::of(case) == Some(ReplyPolicy::None))
        );
        let default_cells = hot_cells(Effort::Default);
        assert_eq!(default_cells.iter().collect::<BTreeSet<_>>().len(), 3 * (12 + 7 + 11 + 16));
        let words = |word_in_case: fn(&Case) -> Option<&'static str>| {
            default_cells.iter().filter_map(word_in_case).collect::<BTreeSet<_>>().len()
        };
        assert_eq!(words(|case| SenderMethod::AXIS.word_in(case)), SenderMethod::ALL.len());
        assert_eq!(words(|case| ReceiverMethod::AXIS.word_in(case)), ReceiverMethod::ALL.len());
        assert_eq!(words(|case| WaitMode::AXIS.word_in(case)), WaitMode::ALL.len());
        assert_eq!(cold_cells(Effort::Quick).len(), 3);
        assert_eq!(cold_cells(Effort::Default).len(), 3 * SenderMethod::USER_SPACE.len());
        assert!(cold_cells(Effort::Default).iter().all(|case| default_cells.contains(case)), "cold beside hot");
    }

    #[test]
    fn every_cell_is_valid_at_both_ends() {
        for case in hot_cells(Effort::Default) {
            let cell = Cell::from_case(&case).unwrap();
            let Some((sending, receiving)) = cell.process_ends() else {
                assert!(transfer::has_kernel_end(&case), "{case}");
                continue;
            };
            assert_eq!((sending.setup.check(), receiving.setup.check()), (Ok(()), Ok(())), "{case}");
            assert_eq!(sending.setup.mode, receiving.setup.mode);
        }
        assert!(Cell::from_case(&Case::new().with_word(TransferFiles::One)).is_err());
    }

    #[test]
    fn fasync_only_in_kernel_cells() {
        let cells: Vec<Case> = hot_cells(Effort::Quick).into_iter().filter(transfer::has_kernel_end).collect();
        assert_eq!(cells.len(), 3 * 16);
        for case in &cells {
            let (SenderEnd::Kernel(sending, is_sender_asynchronous), ReceiverEnd::Kernel(_, is_receiver_asynchronous)) =
                (Cell::from_case(case).unwrap().sending, Cell::from_case(case).unwrap().receiving)
            else {
                panic!("an end of its own: {case}")
            };
            let is_asynchronous = WaitMode::of(case) == Some(WaitMode::Fasync);
            assert_eq!([is_sender_asynchronous, is_receiver_asynchronous], [is_asynchronous; 2]);
            assert_eq!((sending.setup.buffer, sending.setup.window as u64), (512, WINDOW.number_in(case).unwrap()));
        }
        assert_eq!(cells.iter().filter(|case| WaitMode::of(case) == Some(WaitMode::Fasync)).count(), 3 * 4);
        assert!(Cell::from_case(&best_cell().with_word(TransferFiles::One).with_word(WaitMode::Fasync)).is_err());
        assert!(Cell::from_case(&cells[0].clone().with_word(WaitMode::Signal)).is_err());
    }

    #[test]
    fn combinations_are_valid_and_complete() {
        let combinations = all_combinations();
        let unique: BTreeSet<_> = combinations.iter().collect();
        assert_eq!(unique.len(), combinations.len());
        // A buffer that no end uses is the published one: the control of a window is not among them.
        let is_control = |case: &Case| {
            let has_mapping = SenderMethod::of(case).is_some_and(SenderMethod::is_mapping)
                || ReceiverMethod::of(case).is_some_and(ReceiverMethod::is_mapping);
            !has_mapping && WINDOW.number_in(case) != Some(STUDY_WINDOWS[0])
        };
        let process_cells =
            hot_cells(Effort::Default).into_iter().filter(|case| !transfer::has_kernel_end(case) && !is_control(case));
        for case in process_cells {
            let are_both_mapping = SenderMethod::of(&case).is_some_and(SenderMethod::is_mapping)
                && ReceiverMethod::of(&case).is_some_and(ReceiverMethod::is_mapping);
            assert!(are_both_mapping || unique.contains(&case), "{case}");
        }
        // Blocking, nonblocking and by signals 5 senders and 3 receivers, in a ring 5 and 4; of each pair the connection and the reply,
        // and 3 buffers, or 2 windows as well, or 2 windows alone.
        let combinations_of_mode = |senders: usize, receivers: usize| {
            let (one_maps, both_map) = ((senders - 1) + (receivers - 1), 1);
            let none_maps = senders * receivers - one_maps - both_map;
            4 * (3 * none_maps + 6 * one_maps + 2 * both_map)
        };
        assert_eq!(combinations.len(), 3 * (3 * combinations_of_mode(5, 3) + combinations_of_mode(5, 4)));
    }

    #[test]
    fn one_factor_is_varied_at_a_time() {
        let difference_count =
            |case: &Case| case.iter().filter(|(axis, value)| best_cell().get(axis) != Some(*value)).count();
        assert_eq!(difference_count(&best_cell()), 0);
        let is_ring = |case: &&Case| WaitMode::of(case) == Some(WaitMode::Uring);
        assert!(single_factor_cells().iter().filter(|case| !is_ring(case)).all(|case| difference_count(case) == 1));
        assert_eq!(single_factor_cells().iter().filter(is_ring).map(difference_count).collect::<Vec<_>>(), [1, 2, 2]);
    }

    #[test]
    fn window_is_one_call_buffer_as_given() {
        let setting = CellSetting { connection: ConnectionPolicy::PerFile, window: 16, buffer: PUBLISHED_BUFFER };
        let setups = |sender, receiver| {
            let cell = Cell::from_case(&cell(sender, receiver, setting).with_word(TransferFiles::One)).unwrap();
            let (sending, receiving) = cell.process_ends().unwrap();
            (sending.setup, receiving.setup)
        };
        let page = page_bytes();
        let (sending, receiving) = setups(SenderMethod::Mmap, ReceiverMethod::ReadWrite);
        assert_eq!((sending.buffer, sending.window, receiving.buffer), (16 * page, 16, 512));
        assert_eq!(setups(SenderMethod::ReadWrite, ReceiverMethod::Mmap).1.buffer, 16 * page);
    }
}
