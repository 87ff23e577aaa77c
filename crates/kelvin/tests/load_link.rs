//! What the load generator and the server use over a link that is slow, loses requests, doubles and delays frames: no more than their work
//! takes, however often the kernel sends again.

mod link;
mod server_process;
mod test_dir;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use kelvin_testing::MissingRequirement;
use link::{Impairment, Link};
use serde_json::Value;
use server_process::ServerProcess;
use test_dir::{TestDir, stderr};

/// The kernel reports a request as sent once more where it is lost, or its answer delayed.
const IMPAIRED: [Impairment; 2] = [
    Impairment { delay: Duration::from_millis(2), loss: 0.08, reordering: 0.03 },
    Impairment { delay: Duration::from_millis(2), loss: 0.01, reordering: 0.03 },
];
/// Over which a look at what the server uses is answered in time.
const REORDERING: [Impairment; 2] = [Impairment { delay: Duration::from_millis(2), loss: 0.02, reordering: 0.1 }; 2];
const CLEAN: [Impairment; 2] = [Impairment { delay: Duration::from_millis(2), loss: 0.0, reordering: 0.0 }; 2];
/// At which 6 files a second pass.
const LINK_RATE: &str = "1mbit";
const FILE_BYTES: usize = 20_000;
/// Share of a CPU that a process with so little to do may use besides its work: one that never sleeps uses all of it.
const MAX_IDLE_CPU: f64 = 0.1;

/// A server on the far one, whose looks are answered, and what it serves.
struct FarServer {
    link: Link,
    dir: TestDir,
    server: ServerProcess,
    resources: String,
}

impl FarServer {
    fn start(impairments: [Impairment; 2], model: &str) -> Result<Self, MissingRequirement> {
        let link = Link::with_impairments(impairments)?;
        link.limit(LINK_RATE)?;
        let dir = TestDir::new();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        ["a", "b", "c"].iter().for_each(|name| fs::write(root.join(name), vec![7; FILE_BYTES]).unwrap());
        fs::write(dir.path().join("list"), "a\nb\nc\n").unwrap();
        fs::write(dir.path().join("paths"), "/a\n/b\n/c\n").unwrap();
        let token = dir.path().join("token");
        fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let listen = format!("{}:0", Link::FAR_ADDRESS);
        let serve = ["serve", "root", "--listen", &listen, "--model", model, "--expose-stats", "--token-file", "token"];
        let mut server = ServerProcess::spawn(Link::kelvin(&dir, &link.far_host, &serve), Stdio::null());
        let resources = server.line();
        Ok(Self { link, dir, server, resources })
    }

    /// The output of the program on the near one, as data.
    fn run_near(&self, arguments: &[&str]) -> Value {
        let output = Link::kelvin(&self.dir, &self.link.near_host, arguments).output().unwrap();
        assert!(!output.stdout.is_empty(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn load(&self, demand: &[&str]) -> Value {
        let url = format!("http://{}", self.server.address);
        let times = ["--duration", "4s", "--warm-up", "500ms", "--json"];
        let report = self.run_near(&[&["load", &url, "--files", "paths"][..], &times, demand].concat());
        report.as_array().map_or_else(|| report.clone(), |loads| loads[0].clone())
    }

    /// Seconds of CPU that the server has used.
    fn server_cpu(&self) -> f64 {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.server.child.id())).unwrap();
        let (_, rest) = text.rsplit_once(')').unwrap();
        let ticks = rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap());
        ticks.sum::<f64>() / 100.0
    }
}

fn number(object: &Value, name: &str) -> f64 {
    object[name].as_f64().unwrap_or_else(|| panic!("no {name}: {object}"))
}

/// Where a server of each model runs.
fn start_servers(impairments: [Impairment; 2], models: &[&'static str]) -> Vec<(&'static str, FarServer)> {
    let start = |model| match FarServer::start(impairments, model) {
        Ok(far_server) if far_server.server.address.is_empty() => {
            MissingRequirement::machine("Linux with io_uring").report_skip(format!("a server of the model {model}"));
            None
        }
        Ok(far_server) => Some((model, far_server)),
        Err(missing) => {
            missing.report_skip(format!("a server of the model {model} over a link that loses frames"));
            None
        }
    };
    models.iter().copied().filter_map(start).collect()
}

#[test]
fn idle_generator_uses_little_cpu_despite_retransmissions() {
    let demands = [&["--users", "12"][..], &["--users", "6", "--think", "500ms", "--arrivals", "exponential"]];
    let clean = match FarServer::start(CLEAN, "epoll") {
        Ok(far_server) => far_server.load(demands[0]),
        Err(missing) => return missing.report_skip("a link that loses frames"),
    };
    let cost = number(&clean["generator"], "cpu") / number(&clean, "requests");
    for (model, far_server) in start_servers(IMPAIRED, &["epoll", "uring", "pool"]) {
        for demand in demands {
            let (start, cpu_before) = (Instant::now(), far_server.server_cpu());
            let load = far_server.load(demand);
            let (used_cpu, max_idle) =
                (far_server.server_cpu() - cpu_before, MAX_IDLE_CPU * start.elapsed().as_secs_f64());
            assert!(
                used_cpu <= max_idle + 4.0 * cost * number(&load, "requests"),
                "{model}: the server used {used_cpu} s: {load}"
            );
            let generator = &load["generator"];
            let max_cpu = MAX_IDLE_CPU * number(&load, "seconds") + 4.0 * cost * number(&load, "requests");
            assert!(number(generator, "cpu") <= max_cpu, "{model}: more than {max_cpu} s: {load}");
            let spurious = number(generator, "spurious_wakeups");
            assert!(spurious <= 10.0 + number(&load, "connections"), "{model}: woken up for nothing: {load}");
        }
    }
}

#[test]
fn load_steps_use_little_cpu_despite_retransmissions() {
    for (model, far_server) in start_servers(REORDERING, &["epoll"]) {
        let url = format!("http://{}/", far_server.server.address);
        let server_options =
            ["--url", &url, "--url-list", "list", "--stats-token", "token", "--stats-address", &far_server.resources];
        let study_options = ["--users", "4,12", "--rounds", "2", "--step", "1s", "--budget", "1s"];
        let study = far_server.run_near(
            &[&["study", "load", "--no-store", "--json", "--with-samples"][..], &server_options, &study_options]
                .concat(),
        );
        let measurements = study["run"]["measurements"].as_array().unwrap();
        // A visit that the link lets fail, as next to other tests, has no figures.
        let visits = measurements
            .iter()
            .filter(|measurement| measurement["probe"] == "load.throughput")
            .flat_map(|measurement| measurement["rounds"].as_array().unwrap())
            .filter(|round| round["outcome"]["measured"].is_array())
            .count();
        assert!(visits >= 4, "{visits} of 5 visits were measured");
        let mut share_count = 0;
        for measurement in measurements {
            let resource = measurement["case"]["resource"].as_str().unwrap_or_default();
            let is_idle_resource = ["client-cpu", "server-thread"].contains(&resource);
            for round in measurement["rounds"].as_array().unwrap().iter().filter(|_| is_idle_resource) {
                let readings = round["outcome"]["measured"].as_array().unwrap_or_else(|| panic!("{round}")).iter();
                for reading in readings.filter(|reading| reading["metric"] == "load.utilisation") {
                    let share = reading["readings"]["scalars"][0].as_f64().unwrap();
                    assert!(share < 0.5, "{model}: {resource} used {share} of a CPU");
                    share_count += 1;
                }
            }
        }
        assert_eq!(share_count, 2 * visits, "both of each visit");
    }
}
