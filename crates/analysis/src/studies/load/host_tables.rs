//! The tables of what either host did: a row for each number of users.

use kelvin_core::catalogue::load::hosts;
use kelvin_core::catalogue::load::{ACCEPT_QUEUE, CACHE_HITS, CLIENT_MEMORY, NetworkSetup, SERVER_MEMORY};

use super::sweep_tables::table_id;
use super::*;

/// Columns for which there is room beside the numbers of users in 80 columns of a terminal.
const MAX_MAIN_COLUMNS: usize = 6;

/// A column: a figure, and from where on it says something.
struct HostColumn {
    label: &'static str,
    source: ColumnSource,
    threshold: ColumnThreshold,
}

/// Whose figure it is.
enum ColumnSource {
    /// A host's.
    Host(&'static Metric),
    /// One of users that is the server's, or the client's.
    Users(LoadHost, &'static Metric),
}

/// Where a figure is worth a column of a terminal.
enum ColumnThreshold {
    /// From this value on.
    From(f64),
    /// Up to this value.
    UpTo(f64),
    /// Nowhere: it is for reading beside others.
    Never,
}

const fn column_from(label: &'static str, metric: &'static Metric, threshold: f64) -> HostColumn {
    HostColumn { label, source: ColumnSource::Host(metric), threshold: ColumnThreshold::From(threshold) }
}

const fn hidden_column(label: &'static str, metric: &'static Metric) -> HostColumn {
    HostColumn { label, source: ColumnSource::Host(metric), threshold: ColumnThreshold::Never }
}

const fn user_column(
    label: &'static str,
    (host, metric): (LoadHost, &'static Metric),
    says: ColumnThreshold,
) -> HostColumn {
    HostColumn { label, source: ColumnSource::Users(host, metric), threshold: says }
}

/// Those that say most first: in a terminal there is room for a few. Shares from a fiftieth on are told from noise; pressure of less
/// than a tenth is that of any host with work.
static HOST_COLUMNS: [HostColumn; 33] = [
    column_from("user", &hosts::CPU_USER, 0.02),
    column_from("system", &hosts::CPU_SYSTEM, 0.02),
    column_from("steal", &hosts::CPU_STEAL, 0.02),
    column_from("throttled", &hosts::CPU_THROTTLED, 0.02),
    column_from("overflows", &hosts::LISTEN_OVERFLOWS, 0.5),
    column_from("resent", &hosts::RETRANSMITTED_SEGMENTS, 0.001),
    user_column("cache hits", (LoadHost::Server, &CACHE_HITS), ColumnThreshold::UpTo(0.98)),
    user_column("queued connections", (LoadHost::Server, &ACCEPT_QUEUE), ColumnThreshold::From(0.5)),
    column_from("reads", &hosts::DISK_READS, 1.0),
    column_from("read size", &hosts::DISK_READ_SIZE, 1.0),
    column_from("refaults", &hosts::REFAULTS, 100.0),
    column_from("PSI memory", &hosts::PRESSURE_MEMORY, 0.02),
    column_from("PSI io", &hosts::PRESSURE_IO, 0.1),
    column_from("PSI cpu", &hosts::PRESSURE_CPU, 0.1),
    column_from("threads without CPU", &hosts::THREADS_WITHOUT_CPU, 0.5),
    hidden_column("own CPUs", &hosts::CPU_ALLOWED),
    hidden_column("tasks running", &hosts::RUNNABLE_TASKS),
    hidden_column("switches", &hosts::CONTEXT_SWITCHES),
    hidden_column("PSI io full", &hosts::PRESSURE_IO_FULL),
    hidden_column("PSI memory full", &hosts::PRESSURE_MEMORY_FULL),
    user_column("memory", (LoadHost::Server, &SERVER_MEMORY), ColumnThreshold::Never),
    user_column("memory", (LoadHost::Client, &CLIENT_MEMORY), ColumnThreshold::Never),
    hidden_column("available", &hosts::MEMORY_AVAILABLE),
    hidden_column("page cache", &hosts::FILE_CACHE),
    hidden_column("major faults", &hosts::MAJOR_FAULTS),
    hidden_column("read", &hosts::DISK_READ_BYTES),
    hidden_column("writes", &hosts::DISK_WRITES),
    hidden_column("write size", &hosts::DISK_WRITE_SIZE),
    hidden_column("written", &hosts::DISK_WRITTEN_BYTES),
    hidden_column("drops", &hosts::LISTEN_DROPS),
    hidden_column("sockets", &hosts::SOCKETS),
    hidden_column("processes", &hosts::PROCESSES),
    hidden_column("threads", &hosts::THREADS),
];

impl HostColumn {
    fn metric(&self) -> &'static Metric {
        match self.source {
            ColumnSource::Host(metric) | ColumnSource::Users(_, metric) => metric,
        }
    }

    /// The mean over the visits to a number of users.
    fn mean(&self, host: LoadHost, load: &UserLoad) -> Option<f64> {
        let figure = |visit: &LoadStep| match self.source {
            ColumnSource::Host(metric) => visit.host_figure(host, metric),
            ColumnSource::Users(_, metric) => visit.get(metric),
        };
        let values = load.values(figure);
        (!values.is_empty()).then(|| mean(&values))
    }
}

/// The table of each host of which something was told.
pub(super) fn host_tables(sweep: &Sweep) -> impl Iterator<Item = StudyTable> {
    let was_watched = |host: &LoadHost| {
        let own = HOST_COLUMNS.iter().filter(|column| matches!(column.source, ColumnSource::Host(_)));
        own.flat_map(|column| sweep.loads.iter().map(move |load| column.mean(*host, load))).any(|mean| mean.is_some())
    };
    let hosts: Vec<LoadHost> = LoadHost::ALL.iter().copied().filter(was_watched).collect();
    hosts.into_iter().map(|host| host_table(sweep, host))
}

/// The columns of a host.
fn host_columns(host: LoadHost) -> impl Iterator<Item = &'static HostColumn> {
    HOST_COLUMNS.iter().filter(move |column| !matches!(column.source, ColumnSource::Users(its, _) if its != host))
}

/// Those of them that say most of a sweep.
fn shown_columns(host: LoadHost, sweep: &Sweep) -> impl Iterator<Item = &'static HostColumn> {
    let is_worth_showing = move |column: &&HostColumn| {
        let mut means = sweep.loads.iter().filter_map(|load| column.mean(host, load));
        match column.threshold {
            ColumnThreshold::From(least) => means.any(|value| value >= least),
            ColumnThreshold::UpTo(most) => means.any(|value| value <= most),
            ColumnThreshold::Never => false,
        }
    };
    host_columns(host).filter(is_worth_showing).take(MAX_MAIN_COLUMNS)
}

/// The metrics that say little of these sweeps.
pub(super) fn undrawn_metrics(sweeps: &[Sweep]) -> Vec<Name> {
    let pairs = sweeps.iter().flat_map(|sweep| LoadHost::ALL.iter().map(move |host| (*host, sweep)));
    let shown: Vec<Name> =
        pairs.flat_map(|(host, sweep)| shown_columns(host, sweep)).map(|column| column.metric().id).collect();
    HOST_COLUMNS.iter().map(|column| column.metric().id).filter(|metric| !shown.contains(metric)).collect()
}

fn host_table(sweep: &Sweep, host: LoadHost) -> StudyTable {
    let own: Vec<&HostColumn> = host_columns(host).collect();
    let main: Vec<&str> = shown_columns(host, sweep).map(|column| column.label).collect();
    let row = |load: &UserLoad| {
        let cells =
            own.iter().map(|column| column.mean(host, load).map(|value| Figure::without_interval(value, 1))).collect();
        StudyRow { label: counted_text(load.users, "user"), cells }
    };
    let metrics = own.iter().map(|column| column.metric()).chain(hosts::HOST_METRICS.iter().copied());
    StudyTable {
        id: table_id(sweep, host.name()),
        title: format!("{} by users{}", title(host, NetworkSetup::of(&sweep.fixed)), sweep_suffix(&sweep.fixed)),
        columns: own.iter().map(|it| StudyColumn::new(it.label, it.metric().unit, main.contains(&it.label))).collect(),
        rows: sweep.loads.iter().map(row).collect(),
        metrics: metrics.map(|metric| metric.id).collect(),
        bars: None,
    }
}

fn title(host: LoadHost, between: Option<NetworkSetup>) -> &'static str {
    match (host, between) {
        (LoadHost::Server, _) => "The server and its host",
        (LoadHost::Client, Some(NetworkSetup::Hosts)) => "The load generator and its host",
        (LoadHost::Client, _) => "The load generator",
    }
}
