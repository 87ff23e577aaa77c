//! The tables of the study of file transfer: the case of kelvin that each cell is, and its figures.

use std::collections::BTreeMap;

use kelvin_catalogue::transfer::{BUFFER, Connection, Files, Mode, Receiver, Reply, Sender, TIME, WINDOW, in_kernel};
use kelvin_model::{Case, ReferenceValue, Unit};
use serde::Deserialize;

/// Both ends of that study, beside ends that are not.
const IN_KERNEL: &str = "both ends were in the kernel, behind character devices, on a virtual machine";
/// And beside ends that are, of another module.
const OTHER_MODULE: &str =
    "on a virtual machine; read/write went through a buffer of the module, one copy more than here";
/// The mode of tables that stand beside cells of either kind.
const BLOCKING: &str = "blocking";
/// That of tables that only ends in the kernel have: FASYNC was set on a blocking socket.
const ASYNCHRONOUS: &str = "asynchronous";
const NANOSECONDS_OF_A_MILLISECOND: f64 = 1e6;

/// The parts of the file that have figures.
#[derive(Deserialize)]
pub(super) struct File {
    machine: Machine,
    table: Vec<Table>,
}

#[derive(Deserialize)]
struct Machine {
    buffer_bytes: u64,
    trials: u64,
}

/// Cells by the methods of their ends: mean and deviation in milliseconds, and the rate.
type Cells = BTreeMap<String, [f64; 3]>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    connection: String,
    window_pages: u64,
    mode: String,
    small: Cells,
    one: Cells,
    large: Cells,
}

impl File {
    /// A value for each cell that has a published figure: one with both ends in the kernel, as they were, and, where calls block, one
    /// with ends of processes.
    pub(super) fn values(&self) -> Vec<ReferenceValue> {
        self.table.iter().flat_map(|table| self.of_table(table)).collect()
    }

    fn of_table(&self, table: &Table) -> Vec<ReferenceValue> {
        let sets = [(Files::Small, &table.small), (Files::One, &table.one), (Files::Large, &table.large)];
        let cells =
            sets.into_iter().flat_map(|(set, cells)| cells.iter().map(move |(ends, figures)| (set, ends, figures)));
        cells.flat_map(|(set, ends, figures)| self.beside(table, (set, ends), *figures)).collect()
    }

    fn beside(&self, table: &Table, cell: (Files, &str), figures: [f64; 3]) -> Vec<ReferenceValue> {
        let case = self.case(table, cell);
        let there = in_kernel(&case).unwrap_or_else(|| panic!("{case} cannot be in the kernel"));
        let value = |case, spans| self.value(case, spans, figures);
        match table.mode.as_str() {
            BLOCKING => vec![value(case, IN_KERNEL), value(there, OTHER_MODULE)],
            ASYNCHRONOUS => vec![value(there.at(Mode::Fasync), OTHER_MODULE)],
            other => panic!("no cell has the mode {other}"),
        }
    }

    fn value(&self, case: Case, spans: &str, [mean, std, rate]: [f64; 3]) -> ReferenceValue {
        ReferenceValue {
            metric: TIME.id,
            case,
            value: mean * NANOSECONDS_OF_A_MILLISECOND,
            cycles: None,
            std: Some(std * NANOSECONDS_OF_A_MILLISECOND),
            n: Some(self.machine.trials),
            predicted: None,
            unit: Unit::Nanoseconds,
            spans: Some(spans.into()),
            note: None,
            also: vec![("rate, KB per ms".into(), rate)],
        }
    }

    fn case(&self, table: &Table, (set, ends): (Files, &str)) -> Case {
        let cell = || {
            let (sender, receiver) = ends.split_once('/')?;
            let sender = Sender::ALL.iter().find(|known| known.name() == sender)?;
            let receiver = Receiver::ALL.iter().find(|known| known.name() == receiver)?;
            let connection = Connection::ALL.iter().find(|known| known.name() == table.connection)?;
            Some(Case::new().at(*sender).at(*receiver).at(*connection))
        };
        let cell = cell().unwrap_or_else(|| panic!("no cell is {ends} with a connection {}", table.connection));
        let cell = cell.at(set).with(WINDOW, table.window_pages).with(BUFFER, self.machine.buffer_bytes);
        cell.at(Mode::Blocking).at(Reply::None)
    }
}
