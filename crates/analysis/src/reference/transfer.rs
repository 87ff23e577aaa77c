//! The tables of the study of file transfer: the case of kelvin that each cell is, and its figures.

use std::collections::BTreeMap;

use kelvin_catalogue::transfer::{BUFFER, Connection, Files, Mode, Receiver, Reply, Sender, TIME, WINDOW};
use kelvin_model::{Case, Name, ReferenceValue, Unit};
use serde::Deserialize;

use super::places::unmatched;

/// Both ends of that study.
const IN_KERNEL: &str = "both ends were in the kernel, behind character devices, on a virtual machine";
/// What a table is called in the file.
const TABLE: &str = "table";
/// The mode of tables that kelvin has cells of.
const BLOCKING: &str = "blocking";
const NANOSECONDS_OF_A_MILLISECOND: f64 = 1e6;

/// The parts of the file that have figures.
#[derive(Deserialize)]
pub(super) struct File {
    machine: Machine,
    table: Vec<Table>,
}

#[derive(Deserialize)]
struct Machine {
    id: String,
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
    /// A value for each published cell.
    pub(super) fn values(&self) -> Vec<ReferenceValue> {
        self.table.iter().flat_map(|table| self.of_table(table)).collect()
    }

    fn of_table(&self, table: &Table) -> Vec<ReferenceValue> {
        let sets = [(Files::Small, &table.small), (Files::One, &table.one), (Files::Large, &table.large)];
        let cells =
            sets.into_iter().flat_map(|(set, cells)| cells.iter().map(move |(ends, figures)| (set, ends, figures)));
        cells.map(|(set, ends, figures)| self.value(table, (set, ends), *figures)).collect()
    }

    fn value(&self, table: &Table, (set, ends): (Files, &str), [mean, std, rate]: [f64; 3]) -> ReferenceValue {
        let published = ReferenceValue {
            metric: TIME.id,
            case: self.case(table, (set, ends)),
            value: mean * NANOSECONDS_OF_A_MILLISECOND,
            cycles: None,
            std: Some(std * NANOSECONDS_OF_A_MILLISECOND),
            n: Some(self.machine.trials),
            predicted: None,
            unit: Unit::Nanoseconds,
            spans: Some(IN_KERNEL.into()),
            note: None,
            also: vec![("rate, KB per ms".into(), rate)],
        };
        match unmatched(&self.machine.id, TABLE, None) {
            Some(unmatched) if table.mode != BLOCKING => ReferenceValue {
                metric: Name::intern(TABLE),
                case: Case::new(),
                spans: Some(format!("{IN_KERNEL}; {}", unmatched.because)),
                note: Some(format!("{}, {ends}, {}", set.name(), table.mode)),
                ..published
            },
            _ => published,
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
