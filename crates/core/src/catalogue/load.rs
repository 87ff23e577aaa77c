//! A file server under load: what a number of users gets, and what of each resource that takes.
//!
//! A study visits each number of users several times, in random order. Each visit is a round: its figures are at the case of the
//! users, its figures of a resource at the same case with [`Resource`], those of a host with [`hosts::LoadHost`]; rounds of one visit have the
//! same index at all of them.
//! Capacities are at the case of the resource alone.

use crate::{Axis, AxisScale, Better, Metric, Unit};

use crate::catalogue::axis_words::words;
use crate::catalogue::file::CacheState;

pub mod hosts;

/// The metrics of a number of users, in the order of reports.
pub const USER_METRICS: &[&Metric] = &[
    &THROUGHPUT,
    &RATE,
    &RESPONSE,
    &RESPONSE_P50,
    &RESPONSE_P95,
    &RESPONSE_P99,
    &SERVICE,
    &IN_FLIGHT,
    &CLIENT_IN_FLIGHT,
    &SENT_BYTE_RATE,
    &DISK_BYTE_RATE,
    &LATENESS,
    &ERRORS,
    &SERVER_MEMORY,
    &CLIENT_MEMORY,
    &CACHE_HITS,
    &ACCEPT_QUEUE,
    &NETWORK_IN_FLIGHT,
    &WRITTEN_BYTE_RATE,
    &BLOCKED,
    &STALLED,
    &STALLS,
];

/// The metrics of a number of users whose server has more workers.
pub const MORE_WORKERS_METRICS: &[&Metric] = &[&MORE_WORKERS];

/// The metrics of a resource with a number of users.
pub const RESOURCE_METRICS: &[&Metric] = &[&UTILISATION, &BUSY_TIME];

/// The metrics of a resource alone.
pub const CAPACITY_METRICS: &[&Metric] = &[&CAPACITY, &CAPACITY_BYTES, &SERVERS];

words! {
    /// Which file a user asks for next.
    pub enum RequestPattern: "pattern", "pattern of requests" {
        /// Any, each as likely.
        Random = "random",
        /// Always the same.
        Fixed = "fixed",
        /// One after another.
        Sequence = "sequence",
        /// Any, few of them most of the time.
        Zipf = "zipf",
    }
}

words! {
    /// Network between client and server.
    pub enum NetworkSetup: "between", "between client and server" {
        /// The loopback interface.
        Loopback = "loopback",
        /// A pair of virtual interfaces between two network namespaces.
        Namespaces = "namespaces",
        /// A network: they are two hosts.
        Hosts = "hosts",
    }
}

words! {
    /// What requests may wait for.
    pub enum Resource: "resource", "resource" {
        /// Bytes that the server's disk reads.
        Disk = "disk",
        /// Requests that the server's disk serves, whatever their size.
        DiskRequests = "disk-requests",
        /// Bytes from the server to the client.
        Link = "link",
        /// CPUs that the server may use, its quota among the limits.
        ServerCpu = "server-cpu",
        /// One CPU: the busiest thread of the server.
        ServerThread = "server-thread",
        /// Requests that the server works on at once, where it bounds them.
        Workers = "workers",
        /// CPUs that the client may use, its quota among the limits.
        ClientCpu = "client-cpu",
        /// One CPU: the busiest thread of the load generator.
        Generator = "generator",
        /// Time that the server could not send since the client did not read (its receive window was full).
        ClientWindow = "client-window",
    }
}

/// What resources are parts of: of each, the fullest part limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceGroup {
    /// What files are read from.
    Disk,
    /// What lies between the two hosts.
    Link,
    /// The processors of the server.
    ServerCpu,
    /// No hardware: full also where each of its requests waits for some.
    Workers,
    /// The client.
    Client,
}

impl ResourceGroup {
    /// Whether requests are served by it, one after another. Workers hold requests while these are served elsewhere.
    pub fn is_station(self) -> bool {
        self != Self::Workers
    }
}

impl Resource {
    /// The device that it is a part of.
    pub const fn group(self) -> ResourceGroup {
        match self {
            Self::Disk | Self::DiskRequests => ResourceGroup::Disk,
            Self::Link => ResourceGroup::Link,
            Self::ServerCpu | Self::ServerThread => ResourceGroup::ServerCpu,
            Self::Workers => ResourceGroup::Workers,
            Self::ClientCpu | Self::Generator | Self::ClientWindow => ResourceGroup::Client,
        }
    }
}

/// Users: requests of one at a time, each sent after the answer to the one before and the think time. On a linear axis, since
/// throughput grows in proportion to them until something is full.
pub const USERS: Axis = Axis::new("users", "users", AxisScale::Linear);

/// Mean time between an answer and the next request. A category, since a few are compared.
pub const THINK_TIME: Axis = Axis::new("think", "think time, ms", AxisScale::Category);

/// Files of the set.
pub const FILES: Axis = Axis::new("files", "files", AxisScale::Category);

/// Bytes of each file. A category, as a study has one size.
pub const FILE_BYTES: Axis = Axis::new("file_bytes", "bytes of a file", AxisScale::Category);

const fn user_metric(id: &'static str, summary: &'static str) -> Metric {
    unguarded_metric(id, summary).with_axes([
        USERS,
        THINK_TIME,
        RequestPattern::AXIS,
        CacheState::AXIS,
        NetworkSetup::AXIS,
        FILES,
        FILE_BYTES,
    ])
}

const fn resource_metric(id: &'static str, summary: &'static str) -> Metric {
    per_part_metric(id, summary, Resource::AXIS).unit(Unit::Ratio, Better::Neither)
}

/// Of each part of what is studied, such as a resource, with a number of users.
const fn per_part_metric(id: &'static str, summary: &'static str, part: Axis) -> Metric {
    unguarded_metric(id, summary).with_axes([
        USERS,
        part,
        THINK_TIME,
        RequestPattern::AXIS,
        CacheState::AXIS,
        NetworkSetup::AXIS,
        FILES,
        FILE_BYTES,
    ])
}

/// What is measured before a sweep over users, for all of it.
const fn capacity_metric(id: &'static str, summary: &'static str) -> Metric {
    unguarded_metric(id, summary).with_axes([
        Resource::AXIS,
        RequestPattern::AXIS,
        CacheState::AXIS,
        NetworkSetup::AXIS,
        FILES,
        FILE_BYTES,
    ])
}

/// All samples, and no canary: whole systems of many CPUs, devices and hosts, whose disturbances are part of what a user gets.
const fn unguarded_metric(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary).as_found().not_in_cycles()
}

/// Throughput.
pub static THROUGHPUT: Metric =
    user_metric("load.throughput", "Requests a second that were answered in full and right")
        .unit(Unit::PerSecond, Better::Higher);

/// Throughput of a server that was given twice the workers.
pub static MORE_WORKERS: Metric = user_metric(
    "load.throughput.more_workers",
    "Requests a second that were answered in full and right by the same server with twice as many workers",
)
.unit(Unit::PerSecond, Better::Higher);

/// Bytes that arrived.
pub static RATE: Metric = user_metric("load.rate", "Bytes of files a second that the client received")
    .unit(Unit::BytesPerSecond, Better::Higher);

/// Mean response time.
pub static RESPONSE: Metric =
    user_metric("load.response", "Mean time from a request to the last byte of its answer, without think time");

/// Median response time.
pub static RESPONSE_P50: Metric =
    user_metric("load.response.p50", "Median time from a request to the last byte of its answer");

/// 95th percentile of the response time.
pub static RESPONSE_P95: Metric =
    user_metric("load.response.p95", "95th percentile of the time from a request to the last byte of its answer");

/// 99th percentile of the response time.
pub static RESPONSE_P99: Metric =
    user_metric("load.response.p99", "99th percentile of the time from a request to the last byte of its answer");

/// Mean time at the server and on the way.
pub static SERVICE: Metric = user_metric(
    "load.service",
    "Mean time from when a request left the client to the arrival of the last byte of its answer: the response time without what the \
     load generator was late by",
);

/// Requests in flight.
pub static IN_FLIGHT: Metric = user_metric(
    "load.in_flight",
    "Mean number of requests in flight as the server counts them: from the arrival of a request to the last byte of its answer",
)
.unit(Unit::Count, Better::Neither)
.version(3);

/// Requests in flight by the client.
pub static CLIENT_IN_FLIGHT: Metric = user_metric(
    "load.awaited",
    "Mean number of requests that the client waits for: from when they left to the last byte of their answer, those without an answer \
     by the end included",
)
.unit(Unit::Count, Better::Neither)
.version(2);

/// Bytes that left.
pub static SENT_BYTE_RATE: Metric = user_metric("load.sent", "Bytes of files a second that the server sent")
    .unit(Unit::BytesPerSecond, Better::Higher)
    .version(2);

/// Bytes that the disk read.
pub static DISK_BYTE_RATE: Metric =
    user_metric("load.from_disk", "Bytes a second that were read from disks for the server")
        .unit(Unit::BytesPerSecond, Better::Neither);

/// Lateness of the generator.
pub static LATENESS: Metric =
    user_metric("load.lateness", "99th percentile of the time by which the load generator sent requests late");

/// Answers that do not count.
pub static ERRORS: Metric = user_metric("load.errors", "Requests a second that were not answered in full and right")
    .unit(Unit::PerSecond, Better::Lower);

/// Memory of the server.
pub static SERVER_MEMORY: Metric =
    user_metric("load.server.memory", "Memory of the server's processes at the end of a visit, without page cache")
        .unit(Unit::Bytes, Better::Lower);

/// Memory of the client.
pub static CLIENT_MEMORY: Metric =
    user_metric("load.client.memory", "Memory of the load generator at the end of a visit")
        .unit(Unit::Bytes, Better::Lower);

/// Bytes that came from no device.
pub static CACHE_HITS: Metric = user_metric(
    "load.cache_hits",
    "Share of the bytes that the server sent which no disk had to read for it: 0 where disks read as much as was sent, or more",
)
.unit(Unit::Ratio, Better::Higher);

/// Connections that are not accepted yet.
pub static ACCEPT_QUEUE: Metric = user_metric(
    "load.accept_queue",
    "Connections that wait for the server to accept them: the mean of when the time that counts begins and when it ends",
)
.unit(Unit::Count, Better::Lower);

/// Answers that are up to the network.
pub static NETWORK_IN_FLIGHT: Metric = user_metric(
    "load.in_network",
    "Share of the time of requests in flight in which TCP was sending the answer, or waited for its acknowledgement, and neither the \
     client's receive window nor the send buffer kept it from sending: of what a slower link further on, losses and round trips take",
)
.unit(Unit::Ratio, Better::Neither);

/// Bytes that the server wrote.
pub static WRITTEN_BYTE_RATE: Metric = user_metric(
    "load.written",
    "Bytes a second of files that the server wrote: of pages that it made dirty in the page cache, or past it; a page that was flushed counts \
     again",
)
.unit(Unit::BytesPerSecond, Better::Neither);

/// Threads that wait in the kernel.
pub static BLOCKED: Metric = user_metric(
    "load.blocked",
    "Threads of the server in uninterruptible sleep (state D), on average: they wait for a disk, a journal that is flushed, or a lock in the \
     kernel",
)
.unit(Unit::Count, Better::Neither);

/// Time without any byte of an answer.
pub static STALLED: Metric = user_metric(
    "load.stalled",
    "Share of the time in stalls: no byte of any answer came for 5 ms or longer, ten median response times and twenty mean times between \
     answers",
)
.unit(Unit::Ratio, Better::Lower);

/// How often that was.
pub static STALLS: Metric =
    user_metric("load.stalls", "Stalls a second, as load.stalled has them").unit(Unit::PerSecond, Better::Lower);

/// Use of a resource.
pub static UTILISATION: Metric = resource_metric(
    "load.utilisation",
    "Share of a resource's capacity that was used: bytes, requests or CPU time over what it was measured to give alone",
);

/// Time in use.
pub static BUSY_TIME: Metric = resource_metric(
    "load.busy",
    "Share of the time in which a resource had work, as the kernel counts it; a device that serves requests in parallel is busy long \
     before it is full",
)
.only_at(Resource::Disk.point());

/// Capacity in requests.
pub static CAPACITY: Metric = capacity_metric(
    "load.capacity",
    "Requests a second that a resource would serve if it alone were the limit: its capacity over the work of one request",
)
.unit(Unit::PerSecond, Better::Higher)
.version(2);

/// Capacity in bytes.
pub static CAPACITY_BYTES: Metric =
    capacity_metric("load.capacity.bytes", "Bytes a second that a resource was measured to carry alone")
        .unit(Unit::BytesPerSecond, Better::Higher)
        .version(2);

/// Parallel servers.
pub static SERVERS: Metric = capacity_metric(
    "load.servers",
    "Requests that a resource serves at once: CPUs, workers; 1 of those without this figure",
)
.unit(Unit::Count, Better::Neither);
