"""Tokens with a recognisable format: each row of the table is one format of a service.

Sources: gitleaks 8.30, config/gitleaks.toml at commit b58d3f102cf3a2c84cb7f923d05c25c9b1aed84b (MIT
License, Copyright 2019 Zachary Rice), and detect-secrets, detect_secrets/plugins at commit
5e141933554a0b74e7341841f318be21e895339c (Apache License 2.0). Formats that neither has come from
the documentation of the service. Lengths are minimum lengths, so a token that is cut, or that
becomes longer in the future, also matches. A unique prefix needs no boundary before it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TokenFormat:
    """One format of tokens."""

    name: str
    """Its name in docs/reference/redaction.md."""
    hints: tuple[str, ...]
    """Every line with such a token contains one of these texts."""
    pattern: str
    """A regular expression for the token itself."""
    before: str = ""
    """A regular expression for the text that must be before the token."""
    is_exact: bool = True
    """The hints have the case of the token. Otherwise they are in lower case, and match text in any
    case.
    """

    @property
    def is_word(self) -> bool:
        """Nothing with white space must be before the token."""
        return not self.before or self.before.startswith("(?<!")


_WORD = r"(?<![A-Za-z0-9])"
"""Not inside a word; ``_`` may be before it."""
_MODEL = "[A-Za-z0-9]{0,60}(?:For[A-Z][a-z]{2}|Model|LMHead|WithHeads|Attention|Encoder|Decoder|Transformer)"
"""The name of a class of transformers; a random token has such a part once in 100,000 times."""
UUID = "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"

# fmt: off
FORMATS: tuple[TokenFormat, ...] = (
    TokenFormat("1Password secret key", ("A3-",), r"A3-[A-Z0-9]{6}-[A-Z0-9]{6,11}(?:-[A-Z0-9]{5}){2,4}", _WORD),
    TokenFormat("1Password service account token", ("ops_ey",), r"ops_eyJ[a-zA-Z0-9+/_-]{40,}={0,3}"),
    TokenFormat("Adafruit key", ("aio_",), r"aio_[A-Za-z0-9]{28}(?![A-Za-z0-9])"),
    TokenFormat("Adobe client secret", ("p8e-",), r"p8e-[a-zA-Z0-9]{32}"),
    TokenFormat("age secret key", ("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    TokenFormat("Airtable personal access token", ("pat",), r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    TokenFormat("Aiven password", ("AVNS_",), r"AVNS_[\w-]{15,}"),
    TokenFormat("Alibaba access key", ("LTAI",), r"LTAI[A-Za-z0-9]{16,}", _WORD),
    TokenFormat("Anthropic API key", ("sk-ant-",), r"sk-ant-[A-Za-z0-9_-]{16,}"),
    TokenFormat("Anyscale token", ("esecret_",), r"esecret_[a-z0-9]{20,}"),
    TokenFormat("Artifactory API key", ("AKCp",), r"AKCp[A-Za-z0-9]{40,}"),
    TokenFormat("Artifactory reference token", ("cmVmd",), r"cmVmd[A-Za-z0-9]{40,}"),
    TokenFormat("Asana token", ("/",), r"[012]/(?:\d{12,20}/)?\d{12,20}:[0-9a-f]{32}"),
    TokenFormat("Atlassian API token", ("ATATT3", "ATCTT3", "ATCAT3"), r"AT(?:ATT|CTT|CAT)3[A-Za-z0-9_\-=]{20,}"),
    TokenFormat("Authress access key", (".acc",), r"(?:sc|ext|scauth|authress)_[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}\.acc[_-][A-Za-z0-9-]{10,32}\.[A-Za-z0-9+/_=-]{30,120}"),
    TokenFormat("AWS access key", ("A3T", "AKIA", "ASIA", "ABIA", "ACCA", "AROA", "AIDA"), r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{16}(?![a-z])"),
    TokenFormat("AWS Bedrock API key", ("ABSK", "bedrock-api-key-"), r"(?:ABSK[A-Za-z0-9+/]{60,}={0,2}|bedrock-api-key-[A-Za-z0-9+/=_-]{20,})"),
    TokenFormat("AWS session token", ("FwoG", "FQoG", "IQoJ"), r"(?:FwoG|FQoG|IQoJ)[A-Za-z0-9+/=]{60,}"),
    TokenFormat("Axiom token", ("xaat-", "xapt-"), rf"xa[ap]t-{UUID}"),
    TokenFormat("Azure AD client secret", ("Q~",), r"[a-zA-Z0-9_~.]{3}\dQ~[a-zA-Z0-9_~.-]{31,34}"),
    TokenFormat("Azure storage key", ("accountkey",), r"[A-Za-z0-9+/]{40,}={0,2}", r"(?i:AccountKey\s{0,4}[=:]\s{0,4})", is_exact=False),
    TokenFormat("Beamer token", ("beamer",), r"b_[A-Za-z0-9=_\-]{44}", r"(?i:beamer[^\n]{0,40}?)", is_exact=False),
    TokenFormat("Bitbucket app password", ("ATBB",), r"ATBB[A-Za-z0-9_=.-]{24,}"),
    TokenFormat("Buildkite token", ("bkua_",), r"bkua_[a-f0-9]{40}"),
    TokenFormat("Cargo registry token", ("cio",), r"cio[A-Za-z0-9]{32}(?![A-Za-z0-9])", _WORD),
    TokenFormat("Cerebras API key", ("csk-",), r"csk-[a-z0-9]{40,}", _WORD),
    TokenFormat("CircleCI token", ("CCIPAT_", "CCIPRJ_"), r"CCI(?:PAT|PRJ)_[A-Za-z0-9]{10,}_[a-f0-9]{40}"),
    TokenFormat("ClickHouse Cloud key", ("4b1d",), r"4b1d[A-Za-z0-9]{38}(?![A-Za-z0-9])", _WORD),
    TokenFormat("Clojars token", ("CLOJARS_",), r"CLOJARS_[A-Za-z0-9]{40,}"),
    TokenFormat("Cloudflare origin CA key", ("v1.0-",), r"v1\.0-[a-f0-9]{24}-[a-f0-9]{100,}"),
    TokenFormat("Contentful token", ("CFPAT-",), r"CFPAT-[A-Za-z0-9_-]{40,}"),
    TokenFormat("crypt(3) password hash", ("$1$", "$2$", "$2a$", "$2b$", "$2x$", "$2y$", "$5$", "$6$", "$7$", "$y$", "$gy$", "$apr1$", "$argon2", "$scrypt$", "$pbkdf2"), r"\$(?:1|2[abxy]?|5|6|7|y|gy|apr1|argon2\w{0,2}|scrypt|pbkdf2[\w-]{0,12})\$[./A-Za-z0-9$=,+-]{20,}"),
    TokenFormat("Databricks token", ("dapi", "dose"), r"(?:dapi|dose)[a-f0-9]{32}(?:-\d)?", _WORD),
    TokenFormat("Datadog key", ("ddapi_", "ddapp_", "pub"), r"(?:dd(?:api|app)_[A-Za-z0-9]{30,}|pub[a-f0-9]{32}(?![a-f0-9]))", _WORD),
    TokenFormat("dbt Cloud token", ("dbtc_", "dbtu_", "dbts_"), r"dbt[cus]_[\w-]{20,}"),
    TokenFormat("DeepInfra, DeepSeek and OpenAI-like key", ("sk-",), r"sk-[A-Za-z0-9_-]{20,}", r"(?<![\w-])"),
    TokenFormat("Defined Networking token", ("dnkey-",), r"dnkey-[A-Za-z0-9=_\-]{26}-[A-Za-z0-9=_\-]{52}"),
    TokenFormat("DigitalOcean token", ("dop_v1_", "doo_v1_", "dor_v1_"), r"do[opr]_v1_[a-fA-F0-9]{40,}"),
    TokenFormat("Discord bot token", ("MT", "MD", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT"), r"(?:M[TDjz]|N[DTjz]|O[DT])[A-Za-z\d_-]{22,27}\.[\w-]{6}\.[\w-]{27,40}", r"(?<![\w.-])"),
    TokenFormat("Discord webhook", ("discord",), r"(?:discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks)/\d{6,}/[\w-]{16,}"),
    TokenFormat("Docker token", ("dckr_",), r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}"),
    TokenFormat("Doppler token", ("dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."), r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    TokenFormat("Dropbox token", ("sl.",), r"sl\.(?:u\.)?(?=[A-Za-z=_-]{0,60}\d)[A-Za-z0-9\-=_]{60,}"),
    TokenFormat("Duffel token", ("duffel_",), r"duffel_(?:test|live)_[A-Za-z0-9_\-=]{40,}"),
    TokenFormat("Dynatrace token", ("dt0",), r"dt0[a-z]\d{2}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{40,}"),
    TokenFormat("E2B API key", ("e2b_",), r"e2b_[a-f0-9]{36,}"),
    TokenFormat("EasyPost token", ("EZAK", "EZTK"), r"EZ[AT]K[A-Za-z0-9]{54}"),
    TokenFormat("ElevenLabs API key", ("sk_",), r"sk_[a-f0-9]{40,}"),
    TokenFormat("Facebook token", ("EAA", *(f"{digit}|" for digit in range(10))), r"(?:EAACEdEose0cBA[A-Za-z0-9]{20,}|(?<![A-Za-z0-9])EAA[A-Za-z0-9]{60,}|(?<!\d)\d{15,16}\|(?=[\w-]{0,26}[A-Z])[\w-]{26,28}(?![\w-]))"),
    TokenFormat("Figma token", ("figd_", "figo_", "figor_", "figou_", "figu_"), r"fig(?:d|o|or|ou|u)_[A-Za-z0-9_-]{30,}"),
    TokenFormat("Firecrawl API key", ("fc-",), r"fc-[a-f0-9]{32}", _WORD),
    TokenFormat("Fireworks API key", ("fw_",), r"fw_[A-Za-z0-9]{20,}", _WORD),
    TokenFormat("Flutterwave key", ("FLWSECK", "FLWPUBK"), r"FLW(?:SECK|PUBK)(?:_TEST)?-[A-Za-z0-9]{12,40}(?:-X)?"),
    TokenFormat("Fly.io token", ("fo1_", "fm1", "fm2_"), r"(?:fo1_[\w-]{40,}|fm1[ar]_[a-zA-Z0-9+/]{60,}={0,3}|fm2_[a-zA-Z0-9+/]{60,}={0,3})"),
    TokenFormat("Frame.io token", ("fio-u-",), r"fio-u-[A-Za-z0-9\-_=]{40,}"),
    TokenFormat("FullStory key", ("na1.", "eu1."), r"(?:na|eu)1\.[A-Za-z0-9+/=]{60,}", _WORD),
    TokenFormat("GCS HMAC key", ("GOOG1",), r"GOOG1[A-Z0-9]{40,}"),
    TokenFormat("Gitea token", ("gto_", "gta_"), r"gt[oa]_[a-zA-Z0-9]{30,}", _WORD),
    TokenFormat("GitHub fine-grained token", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{20,}"),
    TokenFormat("GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[opusr]_[A-Za-z0-9_]{16,}"),
    TokenFormat("GitLab runner registration token", ("GR1348941",), r"GR1348941[\w-]{16,}"),
    TokenFormat("GitLab session cookie", ("_gitlab_session",), r"[0-9a-z]{24,}", r"_gitlab_session\s{0,2}[=:]\s{0,2}"),
    TokenFormat("GitLab token", ("glpat-", "glcbt-", "gldt-", "glffct-", "glft-", "glimt-", "glagent-", "gloas-", "glptt-", "glrt-", "glrtr-", "glsoat-", "glwt-"), r"gl(?:pat|cbt|dt|ffct|ft|imt|agent|oas|ptt|rt|rtr|soat|wt)-(?:t\d_)?[\w-]{16,}(?:\.(?:[0-9A-Za-z]{2}\.)?[0-9a-z]{7,9})?"),
    TokenFormat("GoCardless token", ("live_", "sandbox_"), r"(?:live|sandbox)_(?=[A-Za-z_=-]{0,120}\d)(?=[a-z0-9_=-]{0,120}[A-Z])[A-Za-z0-9\-_=]{40,}", _WORD),
    TokenFormat("Google API key", ("AIza",), r"AIza[\w-]{30,}"),
    TokenFormat("Google OAuth token", ("ya29.", "GOCSPX-", "1//0"), r"(?:ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}|1//0[\w-]{20,})"),
    TokenFormat("Grafana token", ("eyJrIjoi", "glc_", "glsa_"), r"(?:eyJrIjoi[A-Za-z0-9]{40,}={0,3}|glc_[A-Za-z0-9+/]{32,}={0,3}|glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8})"),
    TokenFormat("Groq API key", ("gsk_",), r"gsk_[A-Za-z0-9]{20,}"),
    TokenFormat("Harness token", ("pat.", "sat."), r"[ps]at\.[a-zA-Z0-9_-]{22}\.[a-zA-Z0-9]{24}\.[a-zA-Z0-9]{20}"),
    TokenFormat("Heroku token", ("HRKU-",), r"HRKU-[A-Za-z0-9_-]{30,}"),
    TokenFormat("Honeycomb key", ("hcaik_", "hcbik_", "hcalk_", "hcblk_", "hcxik_", "hcxlk_"), r"hc[abx][il]k_[a-z0-9]{30,}"),
    TokenFormat("HubSpot token", ("pat-na", "pat-eu"), rf"pat-(?:na|eu)\d-{UUID}"),
    TokenFormat("Hugging Face token", ("hf_", "api_org_"), rf"(?:hf_oauth|hf_jwt|hf|api_org)_(?!{_MODEL})(?=\w{{0,120}}[A-Z0-9])[A-Za-z0-9]{{30,}}"),
    TokenFormat("Infisical token", ("st.",), r"st\.[a-f0-9]{8,}[\w-]{0,40}\.[a-f0-9]{32,}\.[a-f0-9]{32,}"),
    TokenFormat("Infracost token", ("ico-",), r"ico-[a-zA-Z0-9]{32}", _WORD),
    TokenFormat("Intra42 client secret", ("s-s4t2",), r"s-s4t2(?:ud|af)-[A-Fa-f0-9]{64}"),
    TokenFormat("Jina API key", ("jina_",), r"jina_[\w-]{40,}"),
    TokenFormat("JSON Web Key", ("kty",), r"[\w-]{20,}", r"\\*\"(?:d|p|q|dp|dq|qi|k)\\*\"\s{0,4}:\s{0,4}\\*\""),
    TokenFormat("JSON Web Token", ("eyJ", "eyA", "ewo"), r"(?:ey[JA]|ewo)[\w/-]{10,}\.[\w/-]{10,}(?:\.[\w/-]*={0,2}){0,3}", _WORD),
    TokenFormat("JSON Web Token in base64", ("ZXlK",), r"ZXlK[A-Za-z0-9+/]{60,}={0,2}"),
    TokenFormat("Kaggle token", ("KGAT_",), r"KGAT_[a-f0-9]{30,}"),
    TokenFormat("Langfuse key", ("k-lf-",), rf"[ps]k-lf-{UUID}"),
    TokenFormat("LangSmith key", ("ls__",), r"ls__[a-f0-9]{32}"),
    TokenFormat("LangSmith key", ("lsv2_",), r"lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}"),
    TokenFormat("Lark webhook", ("open.feishu.cn", "open.larksuite.com"), rf"open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/{UUID}"),
    TokenFormat("LaunchDarkly key", ("sdk-", "api-", "mob-"), rf"(?:sdk|api|mob)-{UUID}"),
    TokenFormat("Linear API key", ("lin_",), r"lin_(?:api|oauth)_[A-Za-z0-9]{30,}"),
    TokenFormat("Llama Cloud key", ("llx-",), r"llx-[A-Za-z0-9]{40,}"),
    TokenFormat("Lob API key", ("live_", "test_"), r"(?:live|test)_(?:pub_)?[a-f0-9]{31,35}(?![a-f0-9])", _WORD),
    TokenFormat("Mailchimp API key", ("-us",), r"[a-f0-9]{32}-us\d{1,2}", _WORD),
    TokenFormat("Mailgun key", ("-",), r"[a-f0-9]{32}-[a-f0-9]{8}-[a-f0-9]{8}(?![a-f0-9-])", r"(?<![a-f0-9-])"),
    TokenFormat("Mailgun key", ("key-",), r"(?:pub)?key-[a-f0-9]{32}"),
    TokenFormat("Mapbox token", ("pk.", "sk.", "tk."), r"[pst]k\.(?:eyJ[\w-]{20,}|[A-Za-z0-9]{60})\.[\w-]{20,}", _WORD),
    TokenFormat("MaxMind license key", ("_mmk",), r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    TokenFormat("Microsoft Teams webhook", ("webhook.office.com",), r"[a-z0-9]+\.webhook\.office\.com/webhookb2/[\w@/-]{40,}"),
    TokenFormat("Modal token", ("ak-", "as-"), r"a[ks]-(?=[A-Za-z]{0,20}\d)(?=[a-z0-9]{0,20}[A-Z])[A-Za-z0-9]{22}(?![A-Za-z0-9])", _WORD),
    TokenFormat("MongoDB Atlas secret", ("mdb_sa_",), r"mdb_sa_(?:sk|id)_[A-Za-z0-9_-]{24,}"),
    TokenFormat("Neon API key", ("napi_",), r"napi_[a-z0-9]{40,}"),
    TokenFormat("Netlify token", ("nfp_", "nfc_", "nfo_", "nfu_", "nfb_"), r"nf[pcoub]_[A-Za-z0-9_-]{30,}", _WORD),
    TokenFormat("New Relic key", ("NRAL",), r"[a-f0-9]{36,40}(?:FFFF)?NRAL"),
    TokenFormat("New Relic key", ("NRJS-", "NRII-", "NRAK-", "NRAL"), r"NR(?:JS-[a-f0-9]{19}|II-[A-Za-z0-9-]{32}|AK-[A-Z0-9a-z]{27}|AL-?[a-f0-9]{20,})"),
    TokenFormat("ngrok token", ("ngrok",), r"[A-Za-z0-9]{20,32}_[A-Za-z0-9]{16,32}", r"(?i:ngrok[^\n]{0,40}?)(?<![A-Za-z0-9_])", is_exact=False),
    TokenFormat("Nomic API key", ("nk-",), r"nk-(?=[A-Za-z_-]{0,40}\d)[\w-]{40,}", _WORD),
    TokenFormat("ngrok token", ("_",), r"[12][A-Za-z0-9]{26}_(?=[A-Za-z]{0,24}\d)(?=[a-z0-9]{0,24}[A-Z])[A-Za-z0-9]{20,25}(?![A-Za-z0-9_])", r"(?<![A-Za-z0-9_])"),
    TokenFormat("Notion token", ("ntn_", "secret_"), r"(?:ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43})"),
    TokenFormat("npm token", ("npm_",), r"npm_(?=\w{0,120}[A-Z0-9])[A-Za-z0-9]{30,}"),
    TokenFormat("NuGet API key", ("oy2",), r"oy2[a-z0-9]{43}", _WORD),
    TokenFormat("NVIDIA API key", ("nvapi-",), r"nvapi-[\w-]{20,}"),
    TokenFormat("Octopus Deploy key", ("API-",), r"API-[A-Z0-9]{26}", _WORD),
    TokenFormat("OpenAI API key", ("sk-proj-", "sk-svcacct-", "sk-admin-", "sk-None-", "T3BlbkFJ", "sk-or-", "sess-"), r"(?:sk-(?:proj|svcacct|admin|None|or-v1|or)-[A-Za-z0-9_-]{16,}|sk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}|sess-[A-Za-z0-9]{40})"),
    TokenFormat("OpenAI-like key without a boundary", ("sk-",), r"sk-(?=[a-z0-9_-]{0,120}[A-Z])(?=[A-Za-z_-]{0,120}\d)[A-Za-z0-9]{40,}"),
    TokenFormat("OpenShift token", ("sha256~",), r"sha256~[\w-]{30,}"),
    TokenFormat("PayPal and Braintree token", ("access_token$",), r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}"),
    TokenFormat("Perplexity API key", ("pplx-",), r"pplx-[a-zA-Z0-9]{30,}"),
    TokenFormat("Pinecone API key", ("pcsk_",), r"pcsk_[A-Za-z0-9_]{40,}"),
    TokenFormat("Plaid token", ("access-",), rf"access-(?:sandbox|development|production)-{UUID}"),
    TokenFormat("PlanetScale token", ("pscale_",), r"pscale_(?:tkn|oauth|pw)_[\w=.-]{30,}"),
    TokenFormat("PostHog key", ("phc_", "phx_"), r"ph[cx]_[A-Za-z0-9]{40,}"),
    TokenFormat("Postman key", ("PMAK-",), r"PMAK-[A-Fa-f0-9]{24}-[A-Fa-f0-9]{34}"),
    TokenFormat("Prefect token", ("pnu_", "pnb_"), r"pn[ub]_[a-zA-Z0-9]{36}"),
    TokenFormat("Pulumi token", ("pul-",), r"pul-[a-f0-9]{40}"),
    TokenFormat("PyPI token", ("pypi-",), r"pypi-(?:AgE|(?=[\w-]{0,120}\d)(?=[\w-]{0,120}[A-Z]))[A-Za-z0-9_-]{40,}"),
    TokenFormat("ReadMe token", ("rdme_",), r"rdme_[a-z0-9]{60,}"),
    TokenFormat("Replicate token", ("r8_",), r"r8_[A-Za-z0-9]{20,}"),
    TokenFormat("Resend API key", ("re_",), r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}", _WORD),
    TokenFormat("RubyGems token", ("rubygems_",), r"rubygems_[a-f0-9]{40,}"),
    TokenFormat("RunPod API key", ("rpa_",), r"rpa_[A-Z0-9]{40,}"),
    TokenFormat("Scalingo token", ("tk-us-",), r"tk-us-[\w-]{40,}"),
    TokenFormat("SendGrid key", ("SG.",), r"(?:SG\.[\w-]{16,32}\.[\w=-]{32,}|(?<![A-Za-z0-9])SG\.[\w=.-]{16,}\.?[\w=.-]{16,})"),
    TokenFormat("Sendinblue key", ("xkeysib-", "xsmtpsib-"), r"x(?:key|smtp)sib-[a-f0-9]{40,}-[A-Za-z0-9]{16}"),
    TokenFormat("Sentry token", ("sntrys_", "sntryu_"), r"sntry[su]_[A-Za-z0-9+/=_]{40,}"),
    TokenFormat("SettleMint token", ("sm_aat_", "sm_pat_", "sm_sat_"), r"sm_[aps]at_[a-zA-Z0-9]{16}"),
    TokenFormat("Shippo token", ("shippo_",), r"shippo_(?:live|test)_[a-fA-F0-9]{40}"),
    TokenFormat("Shopify token", ("shpat_", "shpca_", "shppa_", "shpss_"), r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    TokenFormat("Sidekiq secret", ("contribsys",), r"[a-f0-9]{8}:[a-f0-9]{8}", r"(?i:contribsys[^\n]{0,40}?)", is_exact=False),
    TokenFormat("Slack app token", ("xapp-",), r"xapp-\d-[A-Za-z0-9-]{16,}"),
    TokenFormat("Slack token", ("xox",), r"(?:xoxd-[A-Za-z0-9%+/=_-]{20,}|xox(?:e\.xox[bp]|[abeoprsc])-(?:\d-)?[A-Za-z0-9-]{10,})"),
    TokenFormat("Slack webhook", ("hooks.slack.com",), r"hooks\.slack\.com/(?:services|workflows|triggers)/[\w+/-]{16,}"),
    TokenFormat("Sonar token", ("squ_", "sqp_", "sqa_"), r"sq[upa]_[a-f0-9]{40}", _WORD),
    TokenFormat("Sourcegraph token", ("sgp_", "slk_"), r"(?:sgp_(?:(?:[a-fA-F0-9]{16}|local)_)?|slk_)[a-fA-F0-9]{40,}"),
    TokenFormat("Square token", ("sq0", "EAAA"), r"(?:sq0(?:atp|csp|idp)-[\w-]{22,}|(?<![A-Za-z0-9+/])EAAA[\w-]{22,60})"),
    TokenFormat("SSH public key", ("AAAA",), r"AAAA[A-Za-z0-9+/]{60,}={0,3}", r"\b(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-nistp\d{3}|sk-\S{4,40}@openssh\.com)\s{1,4}"),
    TokenFormat("Stripe key", ("k_live", "k_test", "k_prod", "whsec_"), r"(?:[srp]k_(?:live|test|prod)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{24,})"),
    TokenFormat("Supabase key", ("sbp_", "sb_"), r"(?:sbp_[a-f0-9]{40}|sb_(?:secret|publishable)_[\w-]{20,})"),
    TokenFormat("Tailscale key", ("tskey-",), r"tskey-[a-z]+-[A-Za-z0-9]{8,}(?:-[A-Za-z0-9]{16,})?"),
    TokenFormat("Tavily API key", ("tvly-",), r"tvly-[A-Za-z0-9-]{20,}"),
    TokenFormat("Telegram bot token", (":AA",), r"\d{6,16}:AA[A-Za-z0-9_-]{30,}", r"(?<!\d)"),
    TokenFormat("Terraform Cloud token", ("atlasv1",), r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9\-_=]{40,}"),
    TokenFormat("Together API key", ("tgp_v1_",), r"tgp_v1_[\w-]{30,}"),
    TokenFormat("Twilio key", ("SK", "AC"), r"(?:SK|AC)[0-9a-f]{32}(?![0-9a-f])", _WORD),
    TokenFormat("Typeform token", ("tfp_",), r"tfp_[A-Za-z0-9\-_.=]{40,}"),
    TokenFormat("Vault legacy token", ("vault",), r"[sbr]\.(?=[A-Za-z]{0,120}\d)[A-Za-z0-9]{24}(?![\w.(\[])", r"(?i:vault[^\n]{0,60}?)(?<![A-Za-z0-9])", False),
    TokenFormat("Vault token", ("hvs.", "hvb.", "hvr."), r"hv[sbr]\.[\w-]{20,}"),
    TokenFormat("Vercel token", ("vca_", "vcp_", "vck_", "vcr_", "vci_"), r"vc[apkri]_[A-Za-z0-9]{40,}", _WORD),
    TokenFormat("Voyage AI key", ("pa-",), r"pa-[A-Za-z0-9_-]{43}(?![\w-])", _WORD),
    TokenFormat("W&B key", ("wandb", "local-"), r"(?:local-)?[0-9a-f]{40}(?![0-9a-f])", r"(?i:wandb[^\n]{0,60}?)(?<![0-9A-Za-z])", is_exact=False),
    TokenFormat("W&B service key", ("wandb_v1_",), r"wandb_v1_\w{20,}"),
    TokenFormat("xAI API key", ("xai-",), r"xai-[A-Za-z0-9]{40,}"),
    TokenFormat("Yandex key", ("AQVN", "YC", "t1.", "y0_", "y1_", "y2_", "y3_"), r"(?:AQVN[A-Za-z0-9_-]{35,38}|(?<![A-Za-z0-9])(?:YC[a-zA-Z0-9_-]{38}(?![\w-])|t1\.[\w-]{8,}={0,2}\.[\w-]{86}={0,2}|y[0-3]_[\w-]{55,}))"),
    TokenFormat("Zapier webhook", ("hooks.zapier.com",), r"hooks\.zapier\.com/hooks/catch/\d+/\w{5,}"),
)
# fmt: on
"""Formats that are recognised without the name of their service."""
