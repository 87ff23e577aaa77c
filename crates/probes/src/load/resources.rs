//! How full each resource of a server is with a number of users.
//!
//! It shows what limits a server. It must not be read as a queue's length: a resource that is full has some, of unknown length.

use kelvin_core::catalogue::load::{CAPACITY, RESOURCE_METRICS, Resource, UTILISATION};

use super::model::expected_load;
use super::users;
use crate::prelude::*;

/// How far a use may lie from what the expected throughput takes: that of a request changes with the number of users, since
/// calls and wake-ups are shared.
const RANGE_FACTOR: f64 = 1.5;

pub(super) static PROBE: Probe = Probe {
    summary: "A file server under load: how full each resource of either end is by number of users",
    method: Method {
        how: "From two looks at either end, when the time of a visit that counts begins and when it ends. Disk: bytes that the \
              kernel read from it for the server, over those that it was measured to give. Link: bytes that the server's interface sent, over those that it was \
              measured to send. CPU: time on CPUs of all threads over that of the CPUs that the process may use, or of its quota. \
              Threads: CPU time of the busiest one. Workers: those that hold a connection, where the server bounds them. Client \
              window: time in which TCP could not send because the client's receive window was full, over that of requests in \
              flight. Generator: time that its thread worked or had no CPU. Beside it, where the kernel counts it, the time in which \
              the device had work.",
        prediction: "The expected throughput (load.throughput) over what the resource serves alone (load.capacity), a range of a factor \
                     of 1.5 either way, and never more than full. Workers, windows and single threads have no capacity in requests, and \
                     no prediction.",
        not_for: "The length of queues: a full resource has one, of whatever length. A device that serves several requests at once is busy \
                  long before it is full.",
        pitfalls: &[
            "The mean over all CPUs, where one thread is the limit: the busiest thread is a resource of its own.",
            "CPUs of the machine taken for those of a container: a quota counts.",
            "%util of a device that serves requests in parallel taken for its use: it is shown beside the use by capacity, and no verdict rests on it.",
        ],
        sources: &[
            "E. D. Lazowska et al., Quantitative System Performance, Prentice-Hall 1984: the utilisation law U = X D",
            "proc_pid_schedstat, proc_diskstats(5), proc_pid_net(5); tcp(7): TCP_INFO",
        ],
    },
    // Those of the published study: its disk, link and processors.
    cases: |machine, effort| {
        let resources = [Resource::ServerCpu, Resource::ServerThread, Resource::ClientCpu, Resource::Generator];
        (users::PROBE.cases)(machine, effort).words(&resources)
    },
    run: super::refuse_single_round,
    predict,
    ..Probe::study(RESOURCE_METRICS)
};

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    if metric.id != UTILISATION.id {
        return Err(NoPrediction::new(
            "how long a device has work while it serves several requests follows from no capacity",
        ));
    }
    let resource = Resource::of(case).filter(|resource| resource.group().is_station());
    let resource =
        resource.ok_or_else(|| NoPrediction::new("workers hold requests while these are served elsewhere"))?;
    let expected = expected_load(facts, case)?;
    let capacity = measured(facts, &CAPACITY, &super::model::single_resource_case(case, resource))?;
    let throughput = given("throughput by mean value analysis", expected.throughput, Unit::PerSecond);
    let used = throughput.beside(&expected.inputs) / capacity;
    let (low, high) = (used.value() / RANGE_FACTOR, (used.value() * RANGE_FACTOR).min(1.0).max(used.value() * 1.02));
    Ok(used.with_interval((low, high)).predict(PredictionBasis::Derived, "utilisation"))
}
