//! `steersman mesh proxies` and `steersman mesh routes`: what a pilot knows, in tables.

use crate::Failure;
use crate::commands::mesh::address::socket;
use anyhow::Context as _;
use bytes::Bytes;
use clap::{Args as ClapArgs, ValueEnum};
use http::{Request, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::time::Duration;
use steersman_mesh::pilot::serve::STATE_PATH;
use steersman_mesh::pilot::serve::state::{ProxyState, RouteState, State};
use tokio::net::TcpStream;

/// How long the pilot may take to answer, and how much it may say.
const PATIENCE: Duration = Duration::from_secs(30);
const BYTES_MAX: usize = 256 * 1024 * 1024;

/// The options of `proxies` and `routes`.
#[derive(ClapArgs, Debug)]
pub(crate) struct StateOptions {
    /// The --debug-address of the pilot. For one in a cluster: `kubectl port-forward`.
    #[arg(long, default_value = "127.0.0.1:15014", value_parser = socket, value_name = "ADDR")]
    pilot: SocketAddr,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Output {
    /// One line of JSON.
    Json,
    /// A table for people.
    Text,
}

/// Prints the proxies.
pub(super) async fn proxies(options: &StateOptions) -> Result<(), Failure> {
    let state = read(options.pilot).await?;
    print(options.output, &state.proxies, || proxy_table(&state))
}

/// Prints the routes.
pub(super) async fn routes(options: &StateOptions) -> Result<(), Failure> {
    let state = read(options.pilot).await?;
    print(options.output, &state.routes, || route_table(&state))
}

fn print<T: serde::Serialize>(output: Output, value: &T, table: impl FnOnce() -> String) -> Result<(), Failure> {
    match output {
        Output::Json => println!("{}", serde_json::to_string(value).context("the state cannot be printed")?),
        Output::Text => print!("{}", table()),
    }
    Ok(())
}

async fn read(pilot: SocketAddr) -> Result<State, Failure> {
    let asked = tokio::time::timeout(PATIENCE, ask(pilot)).await;
    let failed = |why: String| {
        Failure::Refused(format!("the pilot at {pilot} cannot be asked: {why}; --pilot names its --debug-address"))
    };
    let answer = asked.map_err(|_| failed("it does not answer".to_owned()))?;
    let body = answer.map_err(|error| failed(crate::chain(&*error)))?;
    Ok(serde_json::from_slice(&body).with_context(|| format!("the answer of {pilot} is not that of a pilot"))?)
}

async fn ask(pilot: SocketAddr) -> Result<Bytes, anyhow::Error> {
    let stream = TcpStream::connect(pilot).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get(STATE_PATH).header(header::HOST, pilot.to_string()).body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), BYTES_MAX).collect().await.map_err(anyhow::Error::from_boxed)?;
    connection.abort();
    anyhow::ensure!(status.is_success(), "it answers {status}");
    Ok(body.to_bytes())
}

fn proxy_table(state: &State) -> String {
    let row = |proxy: &ProxyState| {
        let count = |kind: &str| proxy.wanted.get(kind).copied().unwrap_or_default().to_string();
        let problem = proxy.rejections.first().map(|one| format!("refuses {}: {}", one.resource, one.error));
        let waits = proxy.pending.first().map(|first| format!("{} pending, first {first}", proxy.n_pending));
        vec![
            proxy.namespace.clone(),
            proxy.pod.clone(),
            if proxy.settled { "yes" } else { "no" }.to_owned(),
            count("cluster"),
            count("listener"),
            count("route"),
            proxy.variant.clone().unwrap_or_else(|| "-".to_owned()),
            problem.or(waits).unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let headers = ["NAMESPACE", "POD", "SETTLED", "CLUSTERS", "LISTENERS", "ROUTES", "PROTOCOL", "PROBLEM"];
    table(&headers, state.proxies.iter().map(row).collect())
}

fn route_table(state: &State) -> String {
    let row = |route: &RouteState| {
        let ports: Vec<String> = route.ports.iter().map(u16::to_string).collect();
        let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        let problem = route.problem.clone().or(route.refusal.clone()).or(route.references.clone());
        vec![
            route.namespace.clone(),
            format!("{}/{}", route.kind.to_lowercase(), route.name),
            route.parent.clone(),
            or_dash(ports.join(",")),
            route.clients.clone().unwrap_or_else(|| "all".to_owned()),
            format!("{}/{}", route.in_force, route.proxies),
            or_dash(problem.unwrap_or_default()),
        ]
    };
    let headers = ["NAMESPACE", "ROUTE", "SERVICE", "PORTS", "CLIENTS", "PROXIES", "PROBLEM"];
    table(&headers, state.routes.iter().map(row).collect())
}

/// Rows in columns; the last one takes what it needs.
fn table(headers: &[&str], rows: Vec<Vec<String>>) -> String {
    let header: Vec<String> = headers.iter().map(|header| (*header).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows.into_iter().map(printable)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..headers.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

/// A row without the control characters by which the words of a proxy would command the terminal.
fn printable(row: Vec<String>) -> Vec<String> {
    let printable = |cell: String| cell.replace(|c: char| c.is_control(), "\u{fffd}");
    row.into_iter().map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let rows = vec![vec!["a\u{1b}[2J\nb\u{9b}c".to_owned()]];
        assert_eq!(table(&["P"], rows), "P\na\u{fffd}[2J\u{fffd}b\u{fffd}c\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["a".to_owned(), "long one".to_owned()], vec!["longer".to_owned(), "x".to_owned()]];
        assert_eq!(table(&["N", "PROBLEM"], rows), "N       PROBLEM\na       long one\nlonger  x\n");
    }
}
