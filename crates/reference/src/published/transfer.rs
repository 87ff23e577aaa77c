//! The tables of the study of file transfer: the case of kelvin that each cell is, and its figures.

use std::collections::BTreeMap;

use kelvin_core::catalogue::transfer::{
    BUFFER, ConnectionPolicy, ReceiverMethod, ReplyPolicy, SenderMethod, TIME, TransferFiles, WINDOW, WaitMode,
    with_kernel_ends,
};
use kelvin_core::{Case, ReferenceValue, Unit};
use serde::Deserialize;

/// Note on cells of ends of processes: both ends of that study were in the kernel.
const KERNEL_ENDS_NOTE: &str = "both ends were in the kernel, behind character devices, on a virtual machine";
/// Note on cells of ends in the kernel: they were of another module.
const OTHER_MODULE_NOTE: &str =
    "on a virtual machine; read/write went through a buffer of the module, one copy more than here";
/// The mode of tables that map to cells of either kind.
const BLOCKING_MODE: &str = "blocking";
/// That of tables that only ends in the kernel have: FASYNC was set on a blocking socket.
const ASYNCHRONOUS_MODE: &str = "asynchronous";
const NANOSECONDS_PER_MILLISECOND: f64 = 1e6;

/// The parts of the file that have figures.
#[derive(Deserialize)]
pub(super) struct TransferStudyFile {
    machine: TransferStudyMachine,
    table: Vec<TransferTable>,
}

#[derive(Deserialize)]
struct TransferStudyMachine {
    buffer_bytes: u64,
    trials: u64,
}

/// Cells by the methods of their ends: mean and deviation in milliseconds, and the rate.
type EndCells = BTreeMap<String, [f64; 3]>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TransferTable {
    connection: String,
    window_pages: u64,
    mode: String,
    small: EndCells,
    one: EndCells,
    large: EndCells,
}

impl TransferStudyFile {
    /// A value for each cell that has a published figure: one with both ends in the kernel, as they were, and, where calls block, one
    /// with ends of processes.
    pub(super) fn values(&self) -> Vec<ReferenceValue> {
        self.table.iter().flat_map(|table| self.table_values(table)).collect()
    }

    fn table_values(&self, table: &TransferTable) -> Vec<ReferenceValue> {
        let sets = [
            (TransferFiles::Small, &table.small),
            (TransferFiles::One, &table.one),
            (TransferFiles::Large, &table.large),
        ];
        let cells =
            sets.into_iter().flat_map(|(set, cells)| cells.iter().map(move |(ends, figures)| (set, ends, figures)));
        cells.flat_map(|(set, ends, figures)| self.cell_values(table, (set, ends), *figures)).collect()
    }

    fn cell_values(
        &self,
        table: &TransferTable,
        cell: (TransferFiles, &str),
        figures: [f64; 3],
    ) -> Vec<ReferenceValue> {
        let case = self.case(table, cell);
        let kernel_case = with_kernel_ends(&case).unwrap_or_else(|| panic!("{case} cannot be in the kernel"));
        let value = |case, spans| self.value(case, spans, figures);
        match table.mode.as_str() {
            BLOCKING_MODE => vec![value(case, KERNEL_ENDS_NOTE), value(kernel_case, OTHER_MODULE_NOTE)],
            ASYNCHRONOUS_MODE => vec![value(kernel_case.with_word(WaitMode::Fasync), OTHER_MODULE_NOTE)],
            other => panic!("no cell has the mode {other}"),
        }
    }

    fn value(&self, case: Case, spans: &str, [mean, std, rate]: [f64; 3]) -> ReferenceValue {
        ReferenceValue {
            metric: TIME.id,
            case,
            value: mean * NANOSECONDS_PER_MILLISECOND,
            cycles: None,
            std: Some(std * NANOSECONDS_PER_MILLISECOND),
            n: Some(self.machine.trials),
            predicted: None,
            unit: Unit::Nanoseconds,
            range: Some(spans.into()),
            note: None,
            other_values: vec![("rate, KB per ms".into(), rate)],
        }
    }

    fn case(&self, table: &TransferTable, (set, ends): (TransferFiles, &str)) -> Case {
        let cell = || {
            let (sender, receiver) = ends.split_once('/')?;
            let sender = SenderMethod::ALL.iter().find(|candidate| candidate.name() == sender)?;
            let receiver = ReceiverMethod::ALL.iter().find(|candidate| candidate.name() == receiver)?;
            let connection = ConnectionPolicy::ALL.iter().find(|candidate| candidate.name() == table.connection)?;
            Some(Case::new().with_word(*sender).with_word(*receiver).with_word(*connection))
        };
        let cell = cell().unwrap_or_else(|| panic!("no cell is {ends} with a connection {}", table.connection));
        let cell =
            cell.with_word(set).with_number(WINDOW, table.window_pages).with_number(BUFFER, self.machine.buffer_bytes);
        cell.with_word(WaitMode::Blocking).with_word(ReplyPolicy::None)
    }
}
