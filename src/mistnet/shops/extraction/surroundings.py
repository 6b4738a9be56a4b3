"""What stands around the amounts of a page: their places, their names, and the words beside them, as features."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Final

from mistnet.shops.extraction.amounts import Amount, find_amounts, line_before
from mistnet.shops.extraction.facts import PriceCandidate, PriceRole
from mistnet.shops.extraction.outline import JOINT, Outline
from mistnet.shops.extraction.price_words import is_lowest_recent, is_related, left_says, right_says

_LEFT, _RIGHT = 60, 40
_BEFORE_NUMBERS: Final = re.compile(r"^.*\d[.,]\d\d\b", re.DOTALL)
_FEW_WORDS: Final = 2
_LABELS: Final = frozenset({"price", "list", "bid", "start_bid"})
_CARD_LEVELS: Final = 9
_NAME_LEVELS: Final = 4
_CARD: Final = 3
_MANY: Final = 6
_BESIDE: Final = 60
_SHORT_LABEL: Final = 30
_FAR: Final = 250
_OLD_OR_NEW: Final = frozenset({"old", "regular", "current"})
# Prices are not lowered by more than this, nor by less.
_MOST_OFF: Final = 10
_LEAST_OFF: Final = 4
_NEAR_PERCENT: Final = 25
_PERCENT: Final = re.compile(r"(?<![\d.,])(\d\d?)(?:[.,]\d)?\s?[%％٪]")
# Such a discount is for some buyers only: the higher amount is still asked.
_CONDITION: Final = re.compile(
    r"subscri|\babo|prenum|coupon|voucher|gutschein|cup[oó]n|cupom|kupon|\bcod[eo]\b|kod\b|member|mitglied|\bclub\b|newsletter|pix|boleto"
    r"|skonto|transfer|\bcash\b|クーポン|쿠폰|優惠券|优惠券|קופון|كوبون",
    re.IGNORECASE,
)
_ASIDE: Final = frozenset(
    {"saving", "instalment", "unit", "shipping", "net", "extra", "from", "deposit", "used", "threshold"}
)
_SLASH: Final = re.compile(r"\s?[/／]")
_LARGE: Final = frozenset({"h1", "h2", "h3", "h4", "strong", "b", "big", "ins"})
_WIDE: Final = frozenset({"current", "instalment", "shipping", "extra", "used", "cart"})
_FORMER: Final = frozenset({"struck", "left_list", "right_list", "name_old", "former_of_pair"})


class Surroundings:
    """What stands around the amounts of a page."""

    def __init__(self, page: Outline, *, url: str, hint: str | None, title: str) -> None:
        self.page = page
        self.amounts = amounts = find_amounts(page, url=url, hint=hint)
        self.title = find_title(page, title)
        self.buttons = sorted(page.first[each.place] for each in page.buttons if not each.aside)
        self.sections = [each for each in page.headings if each.tag != "h1"]
        self.section_begins = [page.first[each.place] for each in self.sections]
        self.related = [*self._related_sections()]
        siblings: Counter[tuple[int, str, str]] = Counter()
        counted: set[int] = set()
        for amount in amounts:
            for place in page.above(amount.place, _CARD_LEVELS):
                if place not in counted:
                    counted.add(place)
                    siblings[self._kind(place)] += 1
        self.siblings = siblings
        self.cards: dict[int, tuple[bool, bool, bool]] = {}
        self.candidates = [*self._candidates()]

    def _related_sections(self) -> Iterator[bool]:
        """Whether each heading behind the title, or one that it is below, begins a part about other things."""
        begin = self.title[0] if self.title else -1
        above: list[tuple[str, bool]] = []
        for section, place in zip(self.sections, self.section_begins, strict=True):
            # The heading of a card stands below that of its section.
            while above and above[-1][0] >= section.tag:
                above.pop()
            said = place > begin and (is_related(section.text) or (bool(above) and above[-1][1]))
            above.append((section.tag, said))
            yield said

    def _kind(self, place: int) -> tuple[int, str, str]:
        page = self.page
        return page.parents[place], page.tags[place], _series(page.marks[place].name)

    def card(self, place: int) -> tuple[bool, bool, bool]:
        """Whether an element stands in one of several alike: with a link to another page; at all; in one of many."""
        if place not in self.cards:
            linked = repeated = many = False
            for each in self.page.above(place, _CARD_LEVELS):
                alike = self.siblings[self._kind(each)]
                if alike >= _CARD and not self.page.marks[each].says.price:
                    repeated = True
                    many = many or alike >= _MANY
                    linked = linked or self.page.holds_link(each)
            self.cards[place] = linked, repeated, many
        return self.cards[place]

    def _candidates(self) -> Iterator[PriceCandidate]:
        page = self.page
        main = [each for each in self.amounts if not self.card(each.place)[0] and not each.struck]
        same = Counter(each.value for each in main)
        begin = self.title[0] if self.title else 0
        first = next(
            (
                each
                for each in main
                if each.begin >= begin and not page.is_aside(each.place) and not page.is_hidden(each.place)
            ),
            None,
        )
        for index, amount in enumerate(self.amounts):
            features = self._features(index)
            if same[amount.value] > 1:
                features["again"] = min(same[amount.value] - 1, 3) / 3
            if first is not None and amount.value == first.value:
                features["first"] = 1.0
            self.beside(index, features)
            yield PriceCandidate(
                amount=amount.value,
                amount_max=amount.most,
                currency=amount.currency,
                path=path_of(page, amount.place),
                snippet=" ".join(
                    page.text[amount.begin - 20 if amount.begin > 20 else 0 : amount.end + 10]
                    .replace(JOINT, "")
                    .split()
                ),
                role=role_of(features),
                features=features,
            )

    def beside(self, index: int, features: dict[str, float]) -> None:
        """Of two different amounts side by side, the higher may be the former price of the lower."""
        amounts, amount = self.amounts, self.amounts[index]
        for step in (-1, 1):
            # The next one that differs: an amount may stand there twice, once for those who cannot see.
            other = index + step
            while 0 <= other < len(amounts) and amounts[other].value == amount.value:
                other += step
            if not 0 <= other < len(amounts):
                continue
            near, between = amounts[other], amounts[other - step]
            if max(near.begin, between.begin) - min(near.end, between.end) >= _BESIDE:
                continue
            low, high = sorted((amount.value, near.value))
            if high > low * _MOST_OFF:  # a fee, the price of a unit, or a count
                continue
            fits = self._fits_percentage(amount, near)
            if near.value > amount.value and (fits or self._is_former(near)):
                features["beside_former"] = 1.0
            if near.value < amount.value and (fits or self._is_former(amount)) and not self._is_aside(other):
                features["former_of_pair"] = 1.0

    def _fits_percentage(self, one: Amount, other: Amount) -> bool:
        """Whether a percentage beside two amounts is what the lower one takes off the higher."""
        begin, end = min(one.begin, other.begin), max(one.end, other.end)
        said = self.page.text[max(begin - _NEAR_PERCENT, 0) : end + _NEAR_PERCENT].replace(JOINT, " ")
        if not (shares := _PERCENT.findall(said)) or _CONDITION.search(said):
            return False
        low, high = sorted((one.value, other.value))
        off = 100 * (1 - low / high)
        return off >= _LEAST_OFF and any(abs(int(each) - off) <= 1 for each in shares)

    def _is_former(self, amount: Amount) -> bool:
        """By a line through it, by the innermost name that tells old from current, or by a word before it."""
        page = self.page
        said = line_before(page.text, amount.begin)
        if amount.struck or "list" in left_says(said[-_SHORT_LABEL:]):
            return True
        for each in page.above(amount.place, _NAME_LEVELS):
            roles = page.marks[each].says.roles
            if roles & _OLD_OR_NEW:
                return bool(roles & {"old", "regular"})
        return False

    def former(self, price: Decimal) -> PriceCandidate | None:
        """The higher amount nearest to a price that stands there as a former or list price."""
        places = [each.begin for each in self.amounts if each.value == price]
        near = [
            (min(abs(each.begin - place) for place in places), candidate)
            for each, candidate in zip(self.amounts, self.candidates, strict=True)
            if places
            and each.value > price
            and candidate.features.keys() & _FORMER
            and "card" not in candidate.features
        ]
        distance, found = min(near, key=lambda each: each[0], default=(_FAR, None))
        return found if distance < _FAR else None

    def _roles_of_names(self, amount: Amount) -> set[str]:
        page, roles = self.page, set[str]()
        for each in page.above(amount.place, _NAME_LEVELS):
            if page.end[each] - page.first[each] > (amount.end - amount.begin) + 25:
                break
            roles |= page.marks[each].says.roles
        return roles

    def _features(self, index: int) -> dict[str, float]:
        page, amount = self.page, self.amounts[index]
        place = amount.place
        linked, repeated, many = self.card(place)
        chain = [*page.above(place, 12)]
        sizes = [page.end[each] - page.first[each] for each in chain]
        known = {
            "visible": True,
            "marked": amount.marked,
            "range": amount.most is not None,
            "struck": amount.struck,
            "hidden": page.is_hidden(place),
            "aside": page.is_aside(place),
            "card": linked,
            "repeated": repeated and not linked,
            "many_alike": many and not linked,
            "linked": any(map(page.is_link, chain)),
            "strong": any(page.tags[each] in _LARGE for each in chain[:3]),
            "sentence": any(
                page.tags[each] in ("p", "li") and size > 160 for each, size in zip(chain[:4], sizes, strict=False)
            ),
            "itemprop": any(page.marks[each].priced for each in chain[:2]),
        }
        found = {name: 1.0 for name, is_so in known.items() if is_so}
        # Sorted: sums of weights and what is stored must not depend on the order of a set.
        found.update((f"name_{role}", 1.0) for role in sorted(self._roles_of_names(amount)))
        wider = {
            role
            for each, size in zip(chain[2:8], sizes[2:8], strict=True)
            if size < 600
            for role in page.marks[each].says.roles
        }
        found.update((f"wide_{role}", 1.0) for role in sorted(wider & _WIDE))
        self._context(index, found)
        self._near_title(amount, found)
        if self.buttons:
            near = bisect_left(self.buttons, amount.begin)
            gap = min(abs(each - amount.begin) for each in self.buttons[max(near - 1, 0) : near + 1])
            found.update((f"button_{reach}", 1.0) for reach in (100, 400, 1_200) if gap <= reach)
        return found

    def _context(self, index: int, found: dict[str, float]) -> None:
        one, other = self._copies(index)
        own, said = self._words_before(one)
        found.update((f"left_{role}", 1.0) for role in sorted(said))
        first, said = self._words_behind(other)
        found.update((f"right_{role}", 1.0) for role in sorted(said))
        if _SLASH.match(first):
            found["right_slash"] = 1.0
        if re.search(r"\d\s?[x×]\s?$|[+＋]\s?\D{0,3}$|[-–−]\s?$", own):
            found["left_sign"] = 1.0
        words = sum(each.isalpha() for each in own + first)
        if words > 45:
            found["in_text"] = 1.0
        elif words == 0:
            found["alone"] = 1.0

    def _words_before(self, index: int) -> tuple[str, frozenset[str]]:
        """What stands before an amount in its line, and the roles that it or the line above gives to the amount."""
        begin, before = self.amounts[index].begin, self.amounts[index - 1].end if index else 0
        # What is said beyond the next amount is said of that one.
        left = _BEFORE_NUMBERS.sub("", self.page.text[max(begin - _LEFT, before) : begin])
        *above, own = [each.replace(JOINT, " ") for each in left.split("\n")]
        if before > begin - _LEFT:  # the rest of the line of another amount is said of that one
            above = above[1:]
        if is_lowest_recent(own):
            return own, (left_says(own) - {"price"}) | {"list"}
        if any(each.isalpha() for each in own):
            return own, left_says(own)
        # The label stands in the line above.
        label = next((each for each in reversed(above) if any(sign.isalpha() for sign in each)), "")
        if len(label) > _SHORT_LABEL or any(sign.isdigit() for sign in label):
            return own, frozenset({"list"} if is_lowest_recent(label) else ())
        return own, left_says(label) & _LABELS if len(label.split()) > _FEW_WORDS else left_says(label)

    def _words_behind(self, index: int) -> tuple[str, frozenset[str]]:
        """What stands behind an amount in its line, and the roles that it gives to the amount."""
        end = self.amounts[index].end
        behind = self.amounts[index + 1].begin if index + 1 < len(self.amounts) else len(self.page.text)
        right = self.page.text[end : min(end + _RIGHT, behind)]
        first = right.split("\n")[0].replace(JOINT, " ")
        said = right_says(first)
        # `1 299:- | Ord. pris 1 999:-`: behind the end of an element, words are those of the next amount in the line.
        if end + len(right) == behind and "\n" not in right and right.lstrip(" ").startswith(JOINT):
            said -= left_says(first)
        return first, said

    def _copies(self, index: int) -> tuple[int, int]:
        """The first and the last of equal amounts that touch: an amount may stand there once more for those who cannot
        see, and what is said of one is said of all."""
        one = other = index
        while one and self._is_copy(one - 1, one):
            one -= 1
        while other + 1 < len(self.amounts) and self._is_copy(other, other + 1):
            other += 1
        return one, other

    def _is_copy(self, one: int, other: int) -> bool:
        first, second = self.amounts[one], self.amounts[other]
        return first.value == second.value and not self.page.text[first.end : second.begin].strip(f" {JOINT}")

    def _is_aside(self, index: int) -> bool:
        """Whether an amount is something beside the price, such as the price of a unit or a saving."""
        one, other = self._copies(index)
        first, behind = self._words_behind(other)
        said = self._roles_of_names(self.amounts[index]) | self._words_before(one)[1] | behind
        return bool(said & _ASIDE or _SLASH.match(first))

    def _near_title(self, amount: Amount, found: dict[str, float]) -> None:
        index = bisect_left(self.section_begins, amount.begin) - 1
        begin, end = self.title or (-1, -1)
        if self.title is None:
            found["no_title"] = 1.0
        elif amount.begin < end:
            if begin - amount.begin < _JUST_BEFORE:
                found["before_title"] = 1.0
        else:
            # In a part about other things the title near it is not theirs.
            reaches = () if index >= 0 and self.related[index] else (120, 400, 1_200, 4_000)
            found.update((f"title_{near}", 1.0) for near in reaches if amount.begin - end <= near)
            between = index + 1 - bisect_left(self.section_begins, end)
            if between > 0:
                found["sections"] = min(between, 3) / 3
        if index >= 0 and self.related[index]:
            found["related"] = 1.0


@lru_cache(maxsize=4096)
def _series(name: str) -> str:
    """The first class without the number that tells one of many from the others."""
    return re.sub(r"[\d_-]+", "", name.split(" ", maxsplit=1)[0])


def find_title(page: Outline, title: str) -> tuple[int, int] | None:
    """Where the page names its thing: the heading that shares most words with its title, or the title itself."""
    words = {each for each in re.findall(r"\w+", title.lower()) if len(each) > 1}
    scored = []
    for order, heading in enumerate(page.headings[:40]):
        own = {each for each in re.findall(r"\w+", heading.text.lower()) if len(each) > 1}
        shared = len(own & words) / max(len(own), 1) * min(len(own & words), 6)
        rank = {"h1": 1.0, "h2": 0.3}.get(heading.tag, 0.0)
        scored.append((shared + rank - 0.01 * order - (1.5 if heading.aside else 0), -order, heading.place))
    best = max(scored, default=None)
    if best and best[0] > _SHARED:
        return page.first[best[2]], page.end[best[2]]
    for part in sorted(_TITLE_PARTS.split(title), key=len, reverse=True)[:2]:
        if len(part) >= _LEAST_TITLE and (begin := page.text.find(part)) >= 0:
            return begin, begin + len(part)
    return (page.first[best[2]], page.end[best[2]]) if best and best[0] > 0.5 else None


_SHARED: Final = 1.2
_LEAST_TITLE: Final = 8
_JUST_BEFORE: Final = 250
_TITLE_PARTS: Final = re.compile(r"\s+[|–—:·»/-]+\s+")


def role_of(features: dict[str, float]) -> PriceRole:
    """What an amount is, where its surroundings say so."""
    for role, names in _ROLES:
        if any(each in features for each in names):
            return role
    return PriceRole.PRICE


_ROLES: Final = (
    (PriceRole.LIST_PRICE, ("struck", "left_list", "right_list")),
    (PriceRole.INSTALMENT, ("left_instalment", "right_instalment", "name_instalment")),
    (PriceRole.UNIT_PRICE, ("left_unit", "right_unit", "name_unit")),
    (PriceRole.SHIPPING, ("left_shipping", "right_shipping", "name_shipping")),
    (PriceRole.SAVING, ("left_saving", "right_saving")),
    (PriceRole.OTHER, ("left_threshold", "left_deposit", "left_extra", "card", "linked", "related")),
)


def path_of(page: Outline, place: int) -> str:
    named = next((each for each in page.above(place, 3) if page.marks[each].name), place)
    return ("visible:" + ".".join((page.tags[named], *page.marks[named].name.split()[:3])))[:120]
