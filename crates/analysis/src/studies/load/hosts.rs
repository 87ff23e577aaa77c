//! The tables of what either host did: a row for each number of users.

use kelvin_catalogue::load::hosts::{
    CPU_ALLOWED, CPU_STEAL, CPU_SYSTEM, CPU_THROTTLED, CPU_USER, DISK_READ_BYTES, DISK_READ_SIZE, DISK_READS,
    DISK_WRITE_SIZE, DISK_WRITES, DISK_WRITTEN_BYTES, FILE_CACHE, Host, LISTEN_DROPS, LISTEN_OVERFLOWS, MAJOR_FAULTS,
    MEMORY_AVAILABLE, OF_HOSTS, PRESSURE_CPU, PRESSURE_IO, PRESSURE_IO_FULL, PRESSURE_MEMORY, PRESSURE_MEMORY_FULL,
    PROCESSES, REFAULTS, RETRANSMITTED, RUNNABLE, SOCKETS, SWITCHES, THREADS, WITHOUT_CPU,
};
use kelvin_catalogue::load::{ACCEPT_QUEUE, Between, CACHE_HITS, CLIENT_MEMORY, SERVER_MEMORY};
use kelvin_model::{Metric, Name};
use kelvin_stats::mean;

use super::sweep::{Load, Sweep, Visit};
use super::tables::{alone, column, file_name, users};
use crate::result::{StudyRow, StudyTable};
use crate::words::load::held;

/// Columns for which there is room beside the numbers of users in 80 columns of a terminal.
const MAIN: usize = 6;

/// A column: a figure, and from where on it says something.
struct Column {
    label: &'static str,
    of: Of,
    says: Says,
}

/// Whose figure it is.
enum Of {
    /// A host's.
    Host(&'static Metric),
    /// One of users that is the server's, or the client's.
    Users(Host, &'static Metric),
}

/// Where a figure is worth a column of a terminal.
enum Says {
    /// From this value on.
    From(f64),
    /// Up to this value.
    UpTo(f64),
    /// Nowhere: it is for reading beside others.
    Never,
}

const fn from(label: &'static str, metric: &'static Metric, least: f64) -> Column {
    Column { label, of: Of::Host(metric), says: Says::From(least) }
}

const fn never(label: &'static str, metric: &'static Metric) -> Column {
    Column { label, of: Of::Host(metric), says: Says::Never }
}

const fn of_users(label: &'static str, (host, metric): (Host, &'static Metric), says: Says) -> Column {
    Column { label, of: Of::Users(host, metric), says }
}

/// Those that say most first: in a terminal there is room for a few. Shares from a fiftieth on are told from noise; pressure of less
/// than a tenth is that of any host with work.
static COLUMNS: [Column; 33] = [
    from("user", &CPU_USER, 0.02),
    from("system", &CPU_SYSTEM, 0.02),
    from("steal", &CPU_STEAL, 0.02),
    from("throttled", &CPU_THROTTLED, 0.02),
    from("overflows", &LISTEN_OVERFLOWS, 0.5),
    from("resent", &RETRANSMITTED, 0.001),
    of_users("cache hits", (Host::Server, &CACHE_HITS), Says::UpTo(0.98)),
    of_users("queued connections", (Host::Server, &ACCEPT_QUEUE), Says::From(0.5)),
    from("reads", &DISK_READS, 1.0),
    from("read size", &DISK_READ_SIZE, 1.0),
    from("refaults", &REFAULTS, 100.0),
    from("PSI memory", &PRESSURE_MEMORY, 0.02),
    from("PSI io", &PRESSURE_IO, 0.1),
    from("PSI cpu", &PRESSURE_CPU, 0.1),
    from("threads without CPU", &WITHOUT_CPU, 0.5),
    never("own CPUs", &CPU_ALLOWED),
    never("tasks running", &RUNNABLE),
    never("switches", &SWITCHES),
    never("PSI io full", &PRESSURE_IO_FULL),
    never("PSI memory full", &PRESSURE_MEMORY_FULL),
    of_users("memory", (Host::Server, &SERVER_MEMORY), Says::Never),
    of_users("memory", (Host::Client, &CLIENT_MEMORY), Says::Never),
    never("available", &MEMORY_AVAILABLE),
    never("page cache", &FILE_CACHE),
    never("major faults", &MAJOR_FAULTS),
    never("read", &DISK_READ_BYTES),
    never("writes", &DISK_WRITES),
    never("write size", &DISK_WRITE_SIZE),
    never("written", &DISK_WRITTEN_BYTES),
    never("drops", &LISTEN_DROPS),
    never("sockets", &SOCKETS),
    never("processes", &PROCESSES),
    never("threads", &THREADS),
];

impl Column {
    fn metric(&self) -> &'static Metric {
        match self.of {
            Of::Host(metric) | Of::Users(_, metric) => metric,
        }
    }

    fn is_of(&self, host: Host) -> bool {
        !matches!(self.of, Of::Users(its, _) if its != host)
    }

    /// The mean over the visits to a number of users.
    fn mean(&self, host: Host, load: &Load) -> Option<f64> {
        let of = |visit: &Visit| match self.of {
            Of::Host(metric) => visit.of_host(host, metric),
            Of::Users(_, metric) => visit.get(metric),
        };
        let values: Vec<f64> = load.visits.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| mean(&values))
    }

    /// Whether it says something with some number of users.
    fn says(&self, host: Host, sweep: &Sweep) -> bool {
        let mut means = sweep.loads.iter().filter_map(|load| self.mean(host, load));
        match self.says {
            Says::From(least) => means.any(|value| value >= least),
            Says::UpTo(most) => means.any(|value| value <= most),
            Says::Never => false,
        }
    }
}

/// The table of each host of which something was told.
pub(super) fn tables(sweep: &Sweep) -> impl Iterator<Item = StudyTable> {
    let is_told = |host: &Host| {
        let own = COLUMNS.iter().filter(|column| matches!(column.of, Of::Host(_)));
        own.flat_map(|column| sweep.loads.iter().map(move |load| column.mean(*host, load))).any(|mean| mean.is_some())
    };
    let hosts: Vec<Host> = Host::ALL.iter().copied().filter(is_told).collect();
    hosts.into_iter().map(|host| table(sweep, host))
}

/// The columns of a host.
fn columns(host: Host) -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(move |column| column.is_of(host))
}

/// Those of them that say most of a sweep.
fn saying(host: Host, sweep: &Sweep) -> impl Iterator<Item = &'static Column> {
    columns(host).filter(move |column| column.says(host, sweep)).take(MAIN)
}

/// The metrics that say little of these sweeps.
pub(super) fn undrawn(sweeps: &[Sweep]) -> Vec<Name> {
    let pairs = sweeps.iter().flat_map(|sweep| Host::ALL.iter().map(move |host| (*host, sweep)));
    let said: Vec<Name> = pairs.flat_map(|(host, sweep)| saying(host, sweep)).map(|one| one.metric().id).collect();
    COLUMNS.iter().map(|column| column.metric().id).filter(|metric| !said.contains(metric)).collect()
}

fn table(sweep: &Sweep, host: Host) -> StudyTable {
    let own: Vec<&Column> = columns(host).collect();
    let main: Vec<&str> = saying(host, sweep).map(|column| column.label).collect();
    let row = |load: &Load| {
        let cells = own.iter().map(|column| column.mean(host, load).map(alone)).collect();
        StudyRow { label: users(load.users), cells }
    };
    let metrics = own.iter().map(|column| column.metric()).chain(OF_HOSTS.iter().copied());
    StudyTable {
        id: file_name(sweep, host.name()),
        title: format!("{} by users{}", title(host, Between::of(&sweep.held)), held(&sweep.held)),
        columns: own.iter().map(|of| column(of.label, of.metric().unit, main.contains(&of.label))).collect(),
        rows: sweep.loads.iter().map(row).collect(),
        metrics: metrics.map(|metric| metric.id).collect(),
        bars: None,
    }
}

fn title(host: Host, between: Option<Between>) -> &'static str {
    match (host, between) {
        (Host::Server, _) => "The server and its host",
        (Host::Client, Some(Between::Hosts)) => "The load generator and its host",
        (Host::Client, _) => "The load generator",
    }
}
