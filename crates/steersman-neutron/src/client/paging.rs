//! Searches: splits long ones into requests that fit into a URL, reads pages, and joins their results.
//!
//! Pure; the client sends the requests.

use std::collections::BTreeMap;

use jiff::Timestamp;
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::client::{NetworkBody, SubnetBody};
use crate::error::Cause;
use crate::types::network::Network;
use crate::types::subnet::Subnet;

/// The longest query that is sent, in bytes. Front ends of clouds often refuse lines beyond 8 KiB.
const QUERY_BYTES_MAX: usize = 6 * 1024;

/// The keys of a search and their values: a key matches if one of its values does.
pub(crate) type Pairs = Vec<(&'static str, Vec<String>)>;

/// A kind of resource, with what searches need of it.
pub(crate) trait Item: Sized {
    /// The last part of the path.
    const COLLECTION: &'static str;
    type One: DeserializeOwned;
    type Page: DeserializeOwned;

    fn from_one(one: Self::One) -> Self;
    fn from_page(page: Self::Page) -> Page<Self>;
    /// Time of creation, then id: the order of results, by which duplicates are recognized.
    fn place(&self) -> (Option<Timestamp>, String);
}

/// A part of the results, and the query of the next part.
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct NetworksPage {
    networks: Vec<Network>,
    #[serde(default)]
    networks_links: Vec<Link>,
}

#[derive(Deserialize)]
pub(crate) struct SubnetsPage {
    subnets: Vec<Subnet>,
    #[serde(default)]
    subnets_links: Vec<Link>,
}

#[derive(Deserialize, Serialize)]
struct Link {
    rel: String,
    href: String,
}

impl Item for Network {
    const COLLECTION: &'static str = "networks";
    type One = NetworkBody<Self>;
    type Page = NetworksPage;

    fn from_one(one: Self::One) -> Self {
        one.network
    }

    fn from_page(page: Self::Page) -> Page<Self> {
        Page { items: page.networks, next: next_query(&page.networks_links) }
    }

    fn place(&self) -> (Option<Timestamp>, String) {
        (self.created_at, self.id.to_string())
    }
}

impl Item for Subnet {
    const COLLECTION: &'static str = "subnets";
    type One = SubnetBody<Self>;
    type Page = SubnetsPage;

    fn from_one(one: Self::One) -> Self {
        one.subnet
    }

    fn from_page(page: Self::Page) -> Page<Self> {
        Page { items: page.subnets, next: next_query(&page.subnets_links) }
    }

    fn place(&self) -> (Option<Timestamp>, String) {
        (self.created_at, self.id.to_string())
    }
}

pub(crate) fn parse_one<T: Item>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map(T::from_one).map_err(|error| not_understood(&error))
}

pub(crate) fn parse_page<T: Item>(body: &[u8]) -> Result<Page<T>, String> {
    serde_json::from_slice(body).map(T::from_page).map_err(|error| not_understood(&error))
}

fn not_understood(error: &serde_json::Error) -> String {
    format!("the answer is not Neutron's ({error})")
}

/// Only the query of a link is used: its host is the server's own idea of its address, which may be wrong behind a
/// proxy.
fn next_query(links: &[Link]) -> Option<String> {
    let next = links.iter().find(|link| link.rel == "next")?;
    let (_, query) = next.href.split_once('?')?;
    Some(query.split('#').next().unwrap_or_default().to_owned())
}

/// The query of the first page.
pub(crate) fn encode(pairs: &Pairs, page_size: usize) -> String {
    let mut url = Url::parse("http://localhost/").expect("invariant: the text is a URL");
    {
        let mut query = url.query_pairs_mut();
        for (key, values) in pairs {
            for value in values {
                query.append_pair(key, value);
            }
        }
        query.append_pair("limit", &page_size.to_string());
    }
    url.query().unwrap_or_default().to_owned()
}

/// Splits a search into parts that each fit into a URL and together find the same. Empty if it can find nothing.
pub(crate) fn split(pairs: Pairs) -> Vec<Pairs> {
    if pairs.iter().any(|(_, values)| values.is_empty()) {
        return Vec::new();
    }
    let longest = (0..pairs.len()).max_by_key(|index| pairs[*index].1.len());
    match longest {
        Some(longest) if 1 < pairs[longest].1.len() && QUERY_BYTES_MAX < encode(&pairs, 0).len() => {
            let (mut front, mut back) = (pairs.clone(), pairs);
            let middle = front[longest].1.len() / 2;
            back[longest].1 = front[longest].1.split_off(middle);
            [split(front), split(back)].concat()
        }
        Some(_) | None => vec![pairs],
    }
}

/// The results of a search so far.
pub(crate) struct SearchResults<T> {
    items: BTreeMap<(Option<Timestamp>, String), T>,
    count_max: usize,
}

impl<T: Item> SearchResults<T> {
    pub(crate) fn new(count_max: usize) -> Self {
        Self { items: BTreeMap::new(), count_max }
    }

    /// Adds a page. Returns whether any of its items was new.
    pub(crate) fn add(&mut self, items: Vec<T>) -> Result<bool, Cause> {
        let before = self.items.len();
        for item in items {
            self.items.insert(item.place(), item);
            if self.count_max < self.items.len() {
                return Err(Cause::Malformed(format!("there are more than {} results", self.count_max)));
            }
        }
        Ok(before < self.items.len())
    }

    pub(crate) fn into_sorted(self) -> Vec<T> {
        self.items.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::{Pairs, QUERY_BYTES_MAX, encode, parse_page, split};
    use crate::types::network::Network;

    #[test]
    fn of_a_link_only_the_query_is_used() {
        let body = br#"{"networks":[],"networks_links":[
            {"rel":"previous","href":"http://inside:9696/v2.0/networks?limit=2&page_reverse=True"},
            {"rel":"next","href":"http://inside:9696/v2.0/networks?limit=2&marker=m"}]}"#;
        assert_eq!(parse_page::<Network>(body).ok().unwrap().next.as_deref(), Some("limit=2&marker=m"));
        assert_eq!(parse_page::<Network>(br#"{"networks":[]}"#).ok().unwrap().next, None);
    }

    #[test]
    fn html_with_status_200_is_not_an_empty_list() {
        assert!(parse_page::<Network>(b"<html>It works!</html>").is_err());
        assert!(parse_page::<Network>(b"{}").is_err());
    }

    #[test]
    fn values_are_escaped() {
        let pairs: Pairs = vec![("description", vec!["a&b=c d/\u{e9}".to_owned()])];
        assert_eq!(encode(&pairs, 9), "description=a%26b%3Dc+d%2F%C3%A9&limit=9");
    }

    #[test]
    fn a_key_without_values_finds_nothing() {
        assert!(split(vec![("id", Vec::new()), ("name", vec!["n".to_owned()])]).is_empty());
        assert_eq!(split(Vec::new()).len(), 1);
    }

    proptest! {
        #[test]
        fn parts_fit_and_cover_every_combination_once(ids in 1_usize..400, names in 1_usize..4) {
            let id = |n: usize| format!("{n:036}");
            let pairs: Pairs =
                vec![("id", (0..ids).map(id).collect()), ("name", (0..names).map(|n| format!("n{n}")).collect())];
            let mut seen = BTreeSet::new();
            for part in split(pairs) {
                prop_assert!(encode(&part, 0).len() <= QUERY_BYTES_MAX);
                for id in &part[0].1 {
                    for name in &part[1].1 {
                        prop_assert!(seen.insert((id.clone(), name.clone())));
                    }
                }
            }
            prop_assert_eq!(seen.len(), ids * names);
        }
    }
}
