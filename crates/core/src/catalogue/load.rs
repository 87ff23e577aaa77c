//! A file server under load: what a number of users gets, and what of each resource that takes.
//!
//! A study visits each number of users several times, in random order. Each visit is a round: its figures are at the case of the
//! users, its figures of a resource at the same case with [`Resource`], those of a host with [`hosts::LoadHost`]; rounds of one visit have the
//! same index at all of them.
//! Capacities are at the case of the resource alone.

use crate::{Axis, AxisScale, Better, Metric, Unit};

use crate::catalogue::axis_words::words;
use crate::catalogue::file::CacheState;
use crate::catalogue::metric_list::{duration, metrics};

pub mod hosts;

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
        /// One CPU: the busiest thread of the load generator. Its capacity is that of all its threads.
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

/// Of version 2 or later: since then the client has half of the CPUs of a host that has the server as well, and a thread on each.
const fn user_metric(id: &'static str) -> Metric {
    let metric = unguarded_metric(id).with_axes([
        USERS,
        THINK_TIME,
        RequestPattern::AXIS,
        CacheState::AXIS,
        NetworkSetup::AXIS,
        FILES,
        FILE_BYTES,
    ]);
    metric.version(2)
}

const fn resource_metric(id: &'static str) -> Metric {
    per_part_metric(id, Resource::AXIS).unit(Unit::Ratio, Better::Neither)
}

/// Of each part of what is studied, such as a resource, with a number of users.
const fn per_part_metric(id: &'static str, part: Axis) -> Metric {
    unguarded_metric(id).with_axes([
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
const fn capacity_metric(id: &'static str) -> Metric {
    unguarded_metric(id).with_axes([
        Resource::AXIS,
        RequestPattern::AXIS,
        CacheState::AXIS,
        NetworkSetup::AXIS,
        FILES,
        FILE_BYTES,
    ])
}

/// All samples, and no canary: whole systems of many CPUs, devices and hosts, whose disturbances are part of what a user gets.
const fn unguarded_metric(id: &'static str) -> Metric {
    duration(id).as_found().not_in_cycles()
}

metrics! {
    /// The metrics of a number of users, in the order of reports.
    pub const USER_METRICS = [
        /// Requests a second that were answered in full and right
        THROUGHPUT = user_metric("load.throughput").unit(Unit::PerSecond, Better::Higher),
        /// Bytes of files a second that the client received
        RATE = user_metric("load.rate").unit(Unit::BytesPerSecond, Better::Higher),
        /// Mean time from a request to the last byte of its answer, without think time
        RESPONSE = user_metric("load.response"),
        /// Median time from a request to the last byte of its answer
        RESPONSE_P50 = user_metric("load.response.p50"),
        /// 95th percentile of the time from a request to the last byte of its answer
        RESPONSE_P95 = user_metric("load.response.p95"),
        /// 99th percentile of the time from a request to the last byte of its answer
        RESPONSE_P99 = user_metric("load.response.p99"),
        /// Mean time from when a request left the client to the arrival of the last byte of its answer: the response time
        /// without what the load generator was late by
        SERVICE = user_metric("load.service"),
        /// Mean number of requests in flight as the server counts them: from the arrival of a request to the last byte of
        /// its answer
        IN_FLIGHT = user_metric("load.in_flight").unit(Unit::Count, Better::Neither).version(4),
        /// Mean number of requests that the client waits for: from when they left to the last byte of their answer, those
        /// without an answer by the end included
        CLIENT_IN_FLIGHT = user_metric("load.awaited").unit(Unit::Count, Better::Neither).version(3),
        /// Bytes of files a second that the server sent
        SENT_BYTE_RATE = user_metric("load.sent").unit(Unit::BytesPerSecond, Better::Higher).version(3),
        /// Bytes a second that were read from disks for the server
        DISK_BYTE_RATE = user_metric("load.from_disk").unit(Unit::BytesPerSecond, Better::Neither),
        /// 99th percentile of the time by which the load generator sent requests late
        LATENESS = user_metric("load.lateness"),
        /// Requests a second that were not answered in full and right
        ERRORS = user_metric("load.errors").unit(Unit::PerSecond, Better::Lower),
        /// Memory of the server's processes at the end of a visit, without page cache
        SERVER_MEMORY = user_metric("load.server.memory").unit(Unit::Bytes, Better::Lower),
        /// Memory of the load generator at the end of a visit
        CLIENT_MEMORY = user_metric("load.client.memory").unit(Unit::Bytes, Better::Lower),
        /// Share of the bytes that the server sent which no disk had to read for it: 0 where disks read as much as was
        /// sent, or more
        CACHE_HITS = user_metric("load.cache_hits").unit(Unit::Ratio, Better::Higher),
        /// Connections that wait for the server to accept them: the mean of when the time that counts begins and when it
        /// ends
        ACCEPT_QUEUE = user_metric("load.accept_queue").unit(Unit::Count, Better::Lower),
        /// Share of the time of requests in flight in which TCP was sending the answer, or waited for its acknowledgement,
        /// and neither the client's receive window nor the send buffer kept it from sending: of what a slower link further
        /// on, losses and round trips take
        NETWORK_IN_FLIGHT = user_metric("load.in_network").unit(Unit::Ratio, Better::Neither),
        /// Bytes a second of files that the server wrote: of pages that it made dirty in the page cache, or past it; a page
        /// that was flushed counts again
        WRITTEN_BYTE_RATE = user_metric("load.written").unit(Unit::BytesPerSecond, Better::Neither),
        /// Threads of the server in uninterruptible sleep (state D), on average: they wait for a disk, a journal that is
        /// flushed, or a lock in the kernel
        BLOCKED = user_metric("load.blocked").unit(Unit::Count, Better::Neither),
        /// Share of the time in stalls: no byte of any answer came for 5 ms or longer, ten median response times and twenty
        /// mean times between answers
        STALLED = user_metric("load.stalled").unit(Unit::Ratio, Better::Lower),
        /// Stalls a second, as load.stalled has them
        STALLS = user_metric("load.stalls").unit(Unit::PerSecond, Better::Lower),
    ];
}

metrics! {
    /// The metrics of a number of users whose server has more workers.
    pub const MORE_WORKERS_METRICS = [
        /// Requests a second that were answered in full and right by the same server with twice as many workers
        MORE_WORKERS = user_metric("load.throughput.more_workers").unit(Unit::PerSecond, Better::Higher),
    ];
}

metrics! {
    /// The metrics of a resource with a number of users.
    pub const RESOURCE_METRICS = [
        /// Share of a resource's capacity that was used: bytes, requests or CPU time over what it was measured to give
        /// alone
        UTILISATION = resource_metric("load.utilisation").version(2),
        /// Share of the time in which a resource had work, as the kernel counts it; a device that serves requests in
        /// parallel is busy long before it is full
        BUSY_TIME = resource_metric("load.busy").only_at(Resource::Disk.point()),
    ];
}

metrics! {
    /// The metrics of a resource alone.
    pub const CAPACITY_METRICS = [
        /// Requests a second that a resource would serve if it alone were the limit: its capacity over the work of one
        /// request
        CAPACITY = capacity_metric("load.capacity").unit(Unit::PerSecond, Better::Higher).version(3),
        /// Bytes a second that a resource was measured to carry alone
        CAPACITY_BYTES = capacity_metric("load.capacity.bytes").unit(Unit::BytesPerSecond, Better::Higher).version(2),
        /// Requests that a resource serves at once: CPUs, workers, threads of the load generator; 1 of those without this
        /// figure
        SERVERS = capacity_metric("load.servers").unit(Unit::Count, Better::Neither).version(2),
    ];
}
