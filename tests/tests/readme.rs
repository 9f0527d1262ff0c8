//! The README's commands, run as they stand there, and the example configuration.
//!
//! Every `console` block of README.md is run, in order, in one empty directory. A line that begins with `$ ` is a command; one
//! that ends in ` &` stays running, and the next begins when it has printed its line of readiness. A line `[exit N]` is
//! the exit code of the command before it, which is 0 without one. Ports are replaced by free ones. The blocks of other
//! languages, which build and install, are not run.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use covenant_tests::binary::{binary, repository, scratch};
use covenant_tests::process::covenant;
use covenant_tests::server::READY_TIMEOUT;
use covenant_tests::{Process, Ran};

/// The ports that the README names.
const PORTS: [&str; 3] = ["7400", "7410", "7411"];

/// A command of the README.
#[derive(PartialEq, Eq, Debug)]
struct Step {
    line: String,
    stays: bool,
    exit: i32,
}

fn steps(text: &str) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            let (line, stays) = match command.strip_suffix(" &") {
                Some(line) => (line, true),
                None => (command, false),
            };
            steps.push(Step {
                line: line.to_owned(),
                stays,
                exit: 0,
            });
        } else if let Some(code) = line.strip_prefix("[exit ").filter(|_| inside) {
            let code = code.strip_suffix(']').context("an exit code ends in a bracket")?;
            steps.last_mut().context("an exit code follows a command")?.exit = code.parse()?;
        }
    }
    Ok(steps)
}

/// A free port for each of the README's; each is held until its server takes it over.
fn free_ports() -> Result<BTreeMap<&'static str, (String, tokio::net::TcpSocket)>> {
    let mut ports = BTreeMap::new();
    for port in PORTS {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((std::net::Ipv4Addr::LOCALHOST, 0).into())?;
        ports.insert(port, (socket.local_addr()?.port().to_string(), socket));
    }
    Ok(ports)
}

#[tokio::test]
async fn every_command_of_the_readme_does_what_it_says() -> Result<()> {
    let text = std::fs::read_to_string(repository().join("README.md"))?;
    let steps = steps(&text)?;
    ensure!(
        steps.len() > 5 && steps.iter().any(|step| step.stays),
        "the README has {steps:?}"
    );
    let ports = free_ports()?;
    let directory = scratch()?;
    let programs = directory.path().join("bin");
    std::fs::create_dir(&programs)?;
    std::os::unix::fs::symlink(binary()?, programs.join("covenant"))?;
    let path = format!(
        "{}:{}",
        programs.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let address = |port: &str| format!("127.0.0.1:{}", ports.get(port).map_or("", |(free, _)| free));
    let mut running = Vec::new();
    for step in steps {
        let mut line = step.line.clone();
        for (port, (free, _)) in &ports {
            line = line.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{free}"));
        }
        if line.starts_with("covenant serve") && !line.contains("--listen") {
            line += &format!(" --listen {}", address("7400"));
        }
        if line.starts_with("covenant ledger") && !line.contains("--coordinator") {
            line += &format!(" --coordinator http://{}", address("7400"));
        }
        let mut command = Command::new("sh");
        command
            .current_dir(directory.path())
            .env("PATH", &path)
            .args(["-c", &format!("exec {line}")]);
        if !step.stays {
            command
                .env("COVENANT_ENDPOINT", format!("http://{}", address("7400")))
                .env("COVENANT_LEDGER", format!("http://{}", address("7410")));
        }
        if step.stays {
            let mut process = Process::spawn(&step.line, &mut command)?;
            process.first_line(READY_TIMEOUT).await?;
            running.push(process);
        } else {
            Ran::to_end(&step.line, &mut command).await?.exits(step.exit)?;
        }
    }
    for process in running.iter_mut().rev() {
        process.terminate()?;
        let status = process.exited(covenant_tests::server::STOP_TIMEOUT).await?;
        ensure!(status.success(), "it ended with {status}; {}", process.tail());
    }
    Ok(())
}

#[test]
fn the_convention_is_read_as_it_is_written() -> Result<()> {
    let text = "```sh\n$ rm\n```\n```console\n$ covenant serve &\nsays\n$ covenant x\n[exit 3]\n```\n$ no\n";
    let step = |line: &str, stays, exit| Step {
        line: line.to_owned(),
        stays,
        exit,
    };
    assert_eq!(
        steps(text)?,
        [step("covenant serve", true, 0), step("covenant x", false, 3)]
    );
    Ok(())
}

#[tokio::test]
async fn the_example_configuration_is_what_is_in_force_by_default() -> Result<()> {
    let example = repository().join("deploy/covenant.toml");
    let shown = covenant(&["config", "show"]).await?.exits(0)?.stdout;
    let written = std::fs::read_to_string(&example).with_context(|| example.display().to_string())?;
    ensure!(
        written == shown,
        "deploy/covenant.toml is not what `covenant config show` prints:\n{shown}"
    );
    let path = example.to_str().context("a path is text")?;
    let values = |shown: &str| {
        shown
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default().trim().to_owned())
            .collect::<Vec<_>>()
    };
    let again = covenant(&["config", "show", "--config", path])
        .await?
        .exits(0)?
        .stdout;
    ensure!(values(&again) == values(&shown), "as --config it gives {again}");
    Ok(())
}
