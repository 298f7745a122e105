"""Keys that are recognised only next to the name of their service: a table of services.

Source: gitleaks 8.30, as in :mod:`.token_formats`, and the documentation of the services.
"""

from __future__ import annotations

import re

from reprokit.core.redaction.rules.token_formats import UUID, TokenFormat

VENDORS: tuple[tuple[str, str, str], ...] = (
    ("Adafruit", "adafruit", r"[a-z0-9_-]{32}"),
    ("Adobe", "adobe", r"[a-f0-9]{32}"),
    ("Airtable", "airtable", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}|[a-zA-Z0-9]{17}"),
    ("Algolia", "algolia", r"[a-zA-Z0-9]{32}"),
    ("Alibaba", "alibaba|aliyun", r"[a-zA-Z0-9]{30}"),
    ("Asana", "asana", r"[a-z0-9]{32}|\d{16}"),
    ("Atlassian", "atlassian|confluence|jira", r"[a-zA-Z0-9]{24}"),
    ("Azure", "azure", r"[A-Za-z0-9+/_~.-]{32,88}={0,2}"),
    ("Bitbucket", "bitbucket", r"[a-zA-Z0-9=_-]{32,64}"),
    ("Bittrex", "bittrex", r"[a-z0-9]{32}"),
    ("Cisco Meraki", "meraki", r"[0-9a-f]{40}"),
    ("Cloudant", "cloudant", r"[a-z]{24}|[0-9a-f]{64}"),
    ("Cloudflare", "cloudflare", r"[A-Za-z0-9_-]{37,40}"),
    ("Codecov", "codecov", rf"[a-z0-9]{{32}}|{UUID}"),
    ("Cohere", "cohere|co_api_key", r"[a-zA-Z0-9]{40}"),
    ("Coinbase", "coinbase", r"[a-zA-Z0-9_-]{64}"),
    ("Comet", "comet", r"[A-Za-z0-9]{25}"),
    ("Confluent", "confluent", r"[a-zA-Z0-9+/]{16}|[a-zA-Z0-9+/]{64}"),
    ("Contentful", "contentful", r"[a-zA-Z0-9=_-]{43}"),
    ("Datadog", "datadog|dd_api|dd_app", r"[a-z0-9]{32}|[a-z0-9]{40}"),
    ("Discord", "discord", r"[a-f0-9]{64}|[A-Za-z0-9=_-]{32}|\d{18}"),
    ("Drone CI", "drone", r"[a-zA-Z0-9]{32}"),
    ("Dropbox", "dropbox", r"[a-z0-9]{15}|[A-Za-z0-9]{11}A{10}[\w=-]{43}"),
    ("Elastic", "elastic", r"[A-Za-z0-9+/_-]{20,}={0,2}"),
    ("Etsy", "etsy", r"[a-zA-Z0-9]{24}"),
    ("Facebook", "facebook", r"[a-f0-9]{32}|\d{15,16}\|[0-9A-Za-z_-]{27,40}"),
    ("Fastly", "fastly", r"[a-zA-Z0-9=_-]{32}"),
    ("Finicity", "finicity", r"[a-f0-9]{32}|[a-z0-9]{20}"),
    ("Finnhub", "finnhub", r"[a-z0-9]{20}"),
    ("Flickr", "flickr", r"[a-z0-9]{32}"),
    ("FreshBooks", "freshbooks", r"[a-z0-9]{64}"),
    ("Gitter", "gitter", r"[a-z0-9_-]{40}"),
    ("Heroku", "heroku", UUID),
    ("HubSpot", "hubspot", UUID),
    ("IBM Cloud", "ibm|softlayer|bluemix", r"[A-Za-z0-9_-]{44}|[a-z0-9]{64}|[a-f0-9]{48}"),
    ("Intercom", "intercom", r"[a-zA-Z0-9=_-]{60}"),
    ("JFrog", "jfrog|artifactory|bintray", r"[a-zA-Z0-9]{64,73}"),
    ("Kraken", "kraken", r"[A-Za-z0-9/=_+-]{80,90}"),
    ("KuCoin", "kucoin", rf"[a-f0-9]{{24}}|{UUID}"),
    ("Kaggle", "kaggle", r"[a-f0-9]{32}"),
    ("LaunchDarkly", "launchdarkly", r"[a-zA-Z0-9=_-]{40}"),
    ("Linear", "linear_client|linear-client", r"[a-f0-9]{32}"),
    ("LinkedIn", "linked_?-?in", r"[a-zA-Z0-9]{14,16}"),
    ("Looker", "looker", r"[a-zA-Z0-9]{20,24}"),
    ("Mailgun", "mailgun", r"[a-h0-9]{32}-[a-h0-9]{8}-[a-h0-9]{8}"),
    ("Mattermost", "mattermost", r"[a-z0-9]{26}"),
    ("MessageBird", "message[_-]?bird", rf"[a-zA-Z0-9]{{25}}|{UUID}"),
    ("Mistral", "mistral", r"[A-Za-z0-9]{32}"),
    ("Neptune", "neptune", r"[A-Za-z0-9+/=]{60,}"),
    ("Netlify", "netlify", r"[A-Za-z0-9=_-]{40,46}"),
    ("New Relic", "new[_-]?relic", r"[A-Za-z0-9]{36,64}"),
    ("NY Times", "nytimes|new-york-times", r"[A-Za-z0-9=_-]{32}"),
    ("Okta", "okta", r"00[\w=-]{40}"),
    ("Plaid", "plaid", r"[a-z0-9]{24}|[a-z0-9]{30}"),
    ("Private AI", "private[_-]?ai", r"[a-z0-9]{32}"),
    ("RapidAPI", "rapidapi", r"[A-Za-z0-9_-]{50}"),
    ("Sendbird", "sendbird", rf"[a-f0-9]{{40}}|{UUID}"),
    ("Sentry", "sentry", r"[a-f0-9]{64}"),
    ("Snyk", "snyk", UUID),
    ("Sonar", "sonar", r"[A-Za-z0-9=_-]{40}"),
    ("Squarespace", "squarespace", UUID),
    ("Stability AI", "stability", r"sk-[A-Za-z0-9]{40,}"),
    ("Sumo Logic", "sumo", r"su[a-zA-Z0-9]{12}|[A-Za-z0-9]{64}"),
    ("Travis CI", "travis", r"[A-Za-z0-9_-]{22}"),
    ("Trello", "trello", r"[a-f0-9]{32}|[A-Za-z0-9]{64,76}"),
    ("Twitch", "twitch", r"[a-z0-9]{30}"),
    (
        "Twitter",
        "twitter",
        r"[a-zA-Z0-9]{25}|[a-zA-Z0-9]{45}|[a-zA-Z0-9]{50}|\d{15,25}-[a-zA-Z0-9]{20,40}|A{22}[a-zA-Z0-9]{80,100}",
    ),
    ("Weights & Biases", "wandb|weights", r"[0-9a-f]{40}"),
    ("Zendesk", "zendesk", r"[A-Za-z0-9]{40}"),
)
"""Services whose keys are recognised only next to their name: the name, a pattern of the name, and
a pattern of the key.
"""
_BETWEEN = r"[ \t\w.-]{0,30}[\s'\"\\]{0,24}(?:=>|:{1,3}=?|\?=|=|,|>)[`'\"\s=\\]{0,24}"


def _of_vendor(name: str, words: str, value: str) -> TokenFormat:
    # the longest text that each name has: "relic" of "new[_-]?relic"
    hints = tuple(
        max(re.findall(r"(?:[a-z_-](?![?*]))+", word), key=len) for word in words.split("|")
    )
    # a key has digits; a value that is only letters is a name
    pattern = rf"(?=[A-Za-z0-9+/=_|%.~-]{{0,120}}\d)(?:{value})(?![A-Za-z0-9])"
    return TokenFormat(
        f"{name} key",
        hints,
        pattern,
        rf"(?i:(?:{words}){_BETWEEN})(?<![A-Za-z0-9])",
        is_exact=False,
    )


FORMATS: tuple[TokenFormat, ...] = tuple(_of_vendor(*row) for row in VENDORS)
"""The formats of the services."""
