//! The tables of what either host did: a row for each number of users.

use super::*;

/// Columns for which there is room next to the numbers of users in 80 columns of a terminal.
const MAX_MAIN_COLUMNS: usize = 6;

/// A column: a figure of a host.
struct HostColumn {
    label: &'static str,
    metric: &'static Metric,
    /// The only host that has it, where it is a figure of users.
    users_of: Option<LoadHost>,
    /// From where to where it is worth a column of a terminal; `None` of one that is read together with others.
    main_range: Option<[f64; 2]>,
}

const fn column_from(label: &'static str, metric: &'static Metric, threshold: f64) -> HostColumn {
    HostColumn { main_range: Some([threshold, f64::INFINITY]), ..hidden_column(label, metric) }
}

const fn hidden_column(label: &'static str, metric: &'static Metric) -> HostColumn {
    HostColumn { label, metric, users_of: None, main_range: None }
}

const fn user_column(column: HostColumn, host: LoadHost) -> HostColumn {
    HostColumn { users_of: Some(host), ..column }
}

/// The most informative first: a terminal shows a few. Shares from a fiftieth on are distinguished from noise; pressure of less
/// than a tenth is that of any host with work.
static HOST_COLUMNS: [HostColumn; 33] = [
    column_from("user", &hosts::CPU_USER, 0.02),
    column_from("system", &hosts::CPU_SYSTEM, 0.02),
    column_from("steal", &hosts::CPU_STEAL, 0.02),
    column_from("throttled", &hosts::CPU_THROTTLED, 0.02),
    column_from("overflows", &hosts::LISTEN_OVERFLOWS, 0.5),
    column_from("resent", &hosts::RETRANSMITTED_SEGMENTS, 0.001),
    HostColumn {
        main_range: Some([0.0, 0.98]),
        ..user_column(hidden_column("cache hits", &CACHE_HITS), LoadHost::Server)
    },
    user_column(column_from("queued connections", &ACCEPT_QUEUE, 0.5), LoadHost::Server),
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
    user_column(hidden_column("memory", &SERVER_MEMORY), LoadHost::Server),
    user_column(hidden_column("memory", &CLIENT_MEMORY), LoadHost::Client),
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
    /// The mean over the visits to a number of users.
    fn mean(&self, host: LoadHost, load: &UserLoad) -> Option<f64> {
        let values = match self.users_of {
            Some(_) => load.figure_values(self.metric),
            None => load.values(|visit| visit.host_figure(host, self.metric)),
        };
        (!values.is_empty()).then(|| mean(&values))
    }
}

/// The table of each host of which something was reported.
pub(super) fn host_tables(sweep: &Sweep) -> impl Iterator<Item = StudyTable> {
    let was_watched = |host: &LoadHost| {
        let mut host_figures = HOST_COLUMNS.iter().filter(|column| column.users_of.is_none());
        host_figures.any(|column| sweep.loads.iter().any(|load| column.mean(*host, load).is_some()))
    };
    let hosts: Vec<LoadHost> = LoadHost::ALL.iter().copied().filter(was_watched).collect();
    hosts.into_iter().map(|host| host_table(sweep, host))
}

/// The columns of a host.
fn host_columns(host: LoadHost) -> impl Iterator<Item = &'static HostColumn> {
    HOST_COLUMNS.iter().filter(move |column| column.users_of.is_none_or(|owner| owner == host))
}

/// The most informative of them for a sweep.
fn shown_columns(host: LoadHost, sweep: &Sweep) -> impl Iterator<Item = &'static HostColumn> {
    let is_worth_showing = move |column: &&HostColumn| {
        let mut means = sweep.loads.iter().filter_map(|load| column.mean(host, load));
        column.main_range.is_some_and(|[low, high]| means.any(|value| (low..=high).contains(&value)))
    };
    host_columns(host).filter(is_worth_showing).take(MAX_MAIN_COLUMNS)
}

/// The metrics that are uninformative for these sweeps.
pub(super) fn undrawn_metrics(sweeps: &[Sweep]) -> Vec<Name> {
    let pairs = sweeps.iter().flat_map(|sweep| LoadHost::ALL.iter().map(move |host| (*host, sweep)));
    let main_metrics = pairs.flat_map(|(host, sweep)| shown_columns(host, sweep)).map(|column| column.metric.id);
    let main_metrics: Vec<Name> = main_metrics.collect();
    HOST_COLUMNS.iter().map(|column| column.metric.id).filter(|metric| !main_metrics.contains(metric)).collect()
}

fn host_table(sweep: &Sweep, host: LoadHost) -> StudyTable {
    let columns: Vec<&HostColumn> = host_columns(host).collect();
    let main: Vec<&str> = shown_columns(host, sweep).map(|column| column.label).collect();
    let row = |load: &UserLoad| {
        let cells = columns
            .iter()
            .map(|column| column.mean(host, load).map(|value| Figure::without_interval(value, 1)))
            .collect();
        StudyRow { label: counted_text(load.users, "user"), cells }
    };
    let metrics = columns.iter().map(|column| column.metric).chain(hosts::HOST_METRICS.iter().copied());
    StudyTable {
        id: sweep.table_id(host.name()),
        title: format!("{} by users{}", title(host, NetworkSetup::of(&sweep.fixed)), sweep_suffix(&sweep.fixed)),
        columns: columns
            .iter()
            .map(|column| StudyColumn::new(column.label, column.metric.unit, main.contains(&column.label)))
            .collect(),
        rows: sweep.loads.iter().map(row).collect(),
        metrics: metrics.map(|metric| metric.id).collect(),
        bars: None,
    }
}

fn title(host: LoadHost, setup: Option<NetworkSetup>) -> &'static str {
    match (host, setup) {
        (LoadHost::Server, _) => "The server and its host",
        (LoadHost::Client, Some(NetworkSetup::Hosts)) => "The load generator and its host",
        (LoadHost::Client, _) => "The load generator",
    }
}
