//! How long a connection to another host takes to open: the way there and back, answered by the other kernel alone.
//!
//! It is the shortest round trip of the network that needs no right. It must not be taken for the time of a request.

use std::net::TcpStream;

use kelvin_harness::{Bench, Kind, Method, Probe, Stop};
use kelvin_model::{Canaries, Case, Metric, NoPrediction, Tags, Treatment};

use super::{AGENT, client, over, stopped, told};

pub(super) static METRIC: Metric =
    Metric::duration("net.peer.connect", "Opening a TCP connection to another host, each timed by itself")
        .headline(Treatment::AsFound)
        .canaries(Canaries::NONE)
        .contaminants(Tags::NONE)
        .not_in_cycles();

pub(in crate::net) static PROBE: Probe = Probe {
    id: "net.peer.connect",
    summary: "A TCP connection to another host: its kernel answers, no program (--peer HOST)",
    kind: Kind::Study,
    method: Method {
        how: "connect() to a port that `kelvin agent` on the other host listens at, each timed by itself. The connection is \
              reset afterwards, so that no port waits for a minute; the agent counts what it accepted.",
        prediction: "None: the length of the way to another host is a fact of the network.",
        not_for: "The time of a request, for which a program of the other host must wake.",
        pitfalls: &[
            "Ports that wait after a close (TIME_WAIT, 60 s): some 28,000 are soon used up. These connections are reset.",
            "A queue of connections that is full: the first packet is sent again after a second, which is a maximum of its \
             own.",
            AGENT,
        ],
        sources: &["lmbench lat_connect", "RFC 9293, 3.5"],
    },
    metrics: &[&METRIC],
    inputs: &[],
    cases: |_, _| vec![Case::new()],
    run,
    predict: |_, _, _| Err(NoPrediction::because("the length of the way to another host is a fact of the network")),
};

fn run(bench: &mut Bench<'_>, _: &Case) -> Result<(), Stop> {
    let mut client = client(bench)?;
    let own = client.own();
    let mut test = client.accepting().map_err(stopped)?;
    let there = *test.socket();
    let mut opened = 0;
    bench.time_each([&METRIC], |clock| {
        let begun = clock.start();
        let stream = TcpStream::connect(there)?;
        let ticks = clock.stop().wrapping_sub(begun);
        kelvin_sys::net::reset_on_close(&stream)?;
        opened += 1;
        Ok([ticks])
    })?;
    let seen = test.finish().map_err(stopped)?;
    // One that was reset before the agent looked is not there to be accepted.
    if seen.arrived > opened {
        return Err(Stop::fail(format!("the agent accepted {} connections of {opened}", seen.arrived)));
    }
    let words = told(&seen, 1);
    bench.note_on_last(format!("{opened} connections, of which the agent accepted {}; {words}", seen.arrived));
    bench.note_on_last(over(own, &seen));
    Ok(())
}
