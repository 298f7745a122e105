from textnet.models import SentenceEncoder
from textnet.tokens import HashTokenizer
