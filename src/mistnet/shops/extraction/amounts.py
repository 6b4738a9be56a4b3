"""Finds every amount of money in the visible text of a page, with what its place and its surroundings say of it."""

# ruff: noqa: RUF001 (foreign words and marks are spelt as they are)

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import msgspec

from mistnet.shops.extraction import currencies
from mistnet.shops.extraction.facts import PriceCandidate, PriceRole
from mistnet.shops.extraction.outline import JOINT, Outline
from mistnet.shops.extraction.price_text import BETWEEN, plain, read_number
from mistnet.shops.extraction.price_words import is_related, left_says, right_says
from mistnet.shops.extraction.words import COUNTED, COUNTS, multiple_after

_GROUPS: Final = r"\d{1,3}(?:[ \u00a0\u202f\u2009'’]\d{3})+(?!\d)(?:[.,]\d{1,2}(?!\d))?"
# Some shops put every part of a number into an element of its own.
_PARTS: Final = (
    rf"\d{{1,3}}(?:(?:{JOINT}*,{JOINT}*\d\d(?!\d))*(?:{JOINT}*[.,'’]{JOINT}*|{JOINT}+ {JOINT}+)\d{{3}}(?!\d))+"
)
_NUMBER: Final = re.compile(rf"(?<!\d)(?:{_GROUPS}|{_PARTS}(?:[.,]\d+)?|[.]?\d(?:[\d.,'’٫٬]*\d)?)")
# Cents in an element of their own, or behind a blank: `55. 99`, `$ 64 90`, `1€40`.
_GAP: Final = rf"[\s{JOINT}]"
_CENTS: Final = re.compile(
    rf"(?:{_GAP}{{0,4}}[.,]{_GAP}{{0,3}}|\s?{JOINT}{_GAP}{{0,3}}|{_GAP}{{0,2}}€{_GAP}{{0,2}}[.,]?)(\d\d)(?!\d|[.,]\d|\s?%)"
    rf"(?=[^\w]*(?:[\n{JOINT}*€]|$))"
)
_HAS_CENTS: Final = re.compile(r"[.,٫]\d\d?$")
_TEASER: Final = re.compile(r"[\d.,]*[?*x]{1,3}(?![\w*])")
_MOST_NUMBERS: Final = 20_000
_MOST: Final = 400
_LEFT, _RIGHT = 60, 40
_BEFORE_NUMBERS: Final = re.compile(r"^.*\d[.,]\d\d\b", re.DOTALL)
_FEW_WORDS: Final = 2
_LABELS: Final = frozenset({"price", "list", "bid", "start_bid"})
_CARD_LEVELS: Final = 9
_NAME_LEVELS: Final = 4
_CARD: Final = 3
_MANY: Final = 6
_SHORT: Final = 60
_BESIDE: Final = 60
_SHORT_LABEL: Final = 30
_FAR: Final = 250
_LONGEST_PRICE: Final = 25
_TOO_DEAR: Final = 10**12
_OLD_OR_NEW: Final = frozenset({"old", "regular", "current"})
_ASIDE: Final = frozenset(
    {"saving", "instalment", "unit", "shipping", "net", "extra", "from", "deposit", "used", "threshold"}
)
_LARGE: Final = frozenset({"h1", "h2", "h3", "h4", "strong", "b", "big", "ins"})
_WIDE: Final = frozenset({"current", "instalment", "shipping", "extra", "used", "cart"})
_FORMER: Final = frozenset({"struck", "left_list", "right_list", "name_old", "former_of_pair"})


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """An amount in the text: where it begins and ends with its mark, its value, and the element it stands in."""

    begin: int
    end: int
    value: Decimal
    most: Decimal | None = None
    currency: str | None
    marked: bool
    place: int


def find_amounts(page: Outline, *, url: str, hint: str | None) -> list[Amount]:
    """All amounts in reading order: those with a currency, and bare numbers in elements that promise a price."""
    text = page.text
    flat = text.replace(JOINT, " ").replace("\n", " ")
    found: list[Amount] = []
    taken = count = 0
    for number in _NUMBER.finditer(text):
        count += 1
        if count > _MOST_NUMBERS or len(found) >= _MOST:
            break
        if number.start() < taken:
            continue
        amount = _read(page, text, flat, number, taken, url=url, hint=hint)
        if amount is None:
            continue
        taken = amount.end
        low = found[-1] if found and found[-1].most is None and found[-1].value < amount.value else None
        is_pair = low and (low.currency == amount.currency or not (low.marked and amount.marked))
        # Only a word for `to` stands between the two ends of a range.
        if low and is_pair and amount.begin - low.end < 12 and BETWEEN.fullmatch(flat[low.end : amount.begin]):
            found[-1] = msgspec.structs.replace(
                low, most=amount.value, end=amount.end, currency=low.currency or amount.currency, marked=True
            )
        else:
            found.append(amount)
    return found


def _read(
    page: Outline, text: str, flat: str, number: re.Match[str], taken: int, *, url: str, hint: str | None
) -> Amount | None:
    begin, end = number.span()
    before = currencies.mark_before(flat, begin)
    if before is not None and before[0] < taken:
        before = None
    if before is None and flat[begin - 1 : begin].isalpha():
        return None
    start, marked = before if before is not None else (begin, ())
    has_cents = currencies.choose(marked, hint=hint, site=url) not in currencies.WHOLE - currencies.SOME_CENTS
    written, end, after = _with_cents(page, text, flat, number) if has_cents else _as_written(number)
    multiple = multiple_after(text, end)
    if multiple is not None:
        end = multiple[0]
    reach = end
    if not after and (marks := currencies.mark_after(flat, end)) and not _is_next(text, flat, end, marks[0], before):
        reach, after = marks
    place = page.holder(start, reach)
    mark = flat[start:begin].strip(" .")
    if (not (marked or after) or (not after and len(mark) == 1 and mark.isalpha())) and not _is_promised(
        page, text, flat, (begin, end), place
    ):
        return None
    if _TEASER.match(flat[end : end + 4]) or flat[begin - 1 : begin] == "?":
        return None
    possible = marked or after
    if marked and after:
        possible = tuple(each for each in marked if each in after) or min(marked, after, key=len)
    currency = currencies.choose(possible, hint=hint, site=url)
    value = read_number(plain(written), currency)
    if value is None or not 0 < value < _TOO_DEAR:
        return None
    if multiple is not None:
        value = (value * multiple[1]).normalize() + 0
    return Amount(begin=start, end=reach, value=value, currency=currency, marked=bool(possible), place=place)


def _with_cents(page: Outline, text: str, flat: str, number: re.Match[str]) -> tuple[str, int, tuple[str, ...]]:
    """The number with cents that stand apart from it, where it ends, and a currency that they show."""
    if not _HAS_CENTS.search(number[0]) and (cents := _CENTS.match(text, number.end())):
        sign = cents[0].strip(f" \n{JOINT}0123456789")
        # Two digits beside the number are cents if the element around both holds nothing else, or if they are all that
        # an element says that touches it.
        holder = page.text_of(page.holder(number.start(), cents.end()), _SHORT)
        digits = re.sub(r"\D", "", number[0] + cents[1])
        alone = JOINT in cents[0] and text[cents.end(1) : cents.end(1) + 1] == JOINT
        touches = not cents[0].strip(f"{JOINT}0123456789")
        is_money = currencies.mark_before(flat, number.start()) or currencies.mark_after(flat, cents.end(1))
        if (
            sign
            or (alone and (touches or is_money))
            or (re.sub(r"\D", "", holder) == digits and len(holder) < _LONGEST_PRICE)
        ):
            whole = re.sub(r"\D", "", number[0])
            return f"{whole}.{cents[1]}", cents.end(1), ("EUR",) if "€" in sign else ()
    return _as_written(number)


def _as_written(number: re.Match[str]) -> tuple[str, int, tuple[str, ...]]:
    return number[0].replace(JOINT, ""), number.end(), ()


def _is_next(text: str, flat: str, end: int, reach: int, before: object) -> bool:
    """Whether a mark behind a number belongs to the next one: `$5 $6`, or a mark in the next line."""
    if "\n" in text[end:reach]:
        return True
    if JOINT in text[reach : reach + 2] and before is None:
        return False
    if not re.match(r"\s?[.]?\d", flat[reach : reach + 3]):
        return False
    following = _NUMBER.search(flat, reach, reach + 24)
    return before is not None or following is None or currencies.mark_after(flat, following.end()) is None


def _is_promised(page: Outline, text: str, flat: str, span: tuple[int, int], place: int) -> bool:
    """Whether a number without a currency is a price: the names around it or the words before it say so."""
    begin, end = span
    if any(each.isalpha() or each in "-_/#" for each in text[begin - 1 : begin] + text[end : end + 1]):
        return False
    named = False
    for each in page.above(place, 3):
        if page.end[each] - page.first[each] > _SHORT:
            break
        named = named or page.says[each].price or each in page.priced
    if not named:
        named = "price" in left_says(_line_before(text, begin))
    return named and not (
        COUNTED.match(flat[end : end + _RIGHT]) or COUNTS.search(flat[max(begin - _RIGHT, 0) : begin])
    )


def _line_before(text: str, begin: int) -> str:
    return text[max(begin - _LEFT, 0) : begin].rsplit("\n", 1)[-1].replace(JOINT, " ")


class Surroundings:
    """What stands around the amounts of a page."""

    def __init__(self, page: Outline, *, url: str, hint: str | None, title: str) -> None:
        self.page = page
        self.amounts = amounts = find_amounts(page, url=url, hint=hint)
        self.title = find_title(page, title)
        self.links, self.priced = frozenset(page.links), frozenset(page.priced)
        self.buttons = sorted(page.first[each.place] for each in page.buttons if not each.aside)
        self.sections = [each for each in page.headings if each.tag != "h1"]
        self.section_begins = [page.first[each.place] for each in self.sections]
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

    def _kind(self, place: int) -> tuple[int, str, str]:
        page = self.page
        name = re.sub(r"[\d_-]+", "", page.names[place].split(" ")[0])
        return page.parents[place], page.tags[place], name

    def card(self, place: int) -> tuple[bool, bool, bool]:
        """Whether an element stands in one of several alike: with a link to another page; at all; in one of many."""
        if place not in self.cards:
            linked = repeated = many = False
            for each in self.page.above(place, _CARD_LEVELS):
                alike = self.siblings[self._kind(each)]
                if alike >= _CARD and not self.page.says[each].price:
                    repeated = True
                    many = many or alike >= _MANY
                    linked = linked or self.page.holds(each, self.page.links)
            self.cards[place] = linked, repeated, many
        return self.cards[place]

    def _candidates(self) -> Iterator[PriceCandidate]:
        page = self.page
        main = [each for each in self.amounts if not self.card(each.place)[0] and not page.struck[each.place]]
        same = Counter(each.value for each in main)
        begin = self.title[0] if self.title else 0
        first = next(
            (
                each
                for each in main
                if each.begin >= begin and not page.aside[each.place] and not page.hidden[each.place]
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
        amounts, amount, text = self.amounts, self.amounts[index], self.page.text
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
            if near.value > amount.value and self._is_former(near):
                features["beside_former"] = 1.0
            if near.value < amount.value and self._is_former(amount):
                behind = text[near.end : near.end + _RIGHT].split("\n")[0].replace(JOINT, " ")
                said = left_says(_line_before(text, near.begin)) | right_says(behind)
                if not (self._roles_of_names(near) | said) & _ASIDE:
                    features["former_of_pair"] = 1.0

    def _is_former(self, amount: Amount) -> bool:
        """By a line through it, by the innermost name that tells old from current, or by a word before it."""
        page = self.page
        said = _line_before(page.text, amount.begin)
        if page.struck[amount.place] or "list" in left_says(said[-_SHORT_LABEL:]):
            return True
        for each in page.above(amount.place, _NAME_LEVELS):
            roles = page.says[each].roles
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
            roles |= page.says[each].roles
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
            "struck": page.struck[place],
            "hidden": page.hidden[place],
            "aside": page.aside[place],
            "card": linked,
            "repeated": repeated and not linked,
            "many_alike": many and not linked,
            "linked": not self.links.isdisjoint(chain),
            "strong": any(page.tags[each] in _LARGE for each in chain[:3]),
            "sentence": any(
                page.tags[each] in ("p", "li") and size > 160 for each, size in zip(chain[:4], sizes, strict=False)
            ),
            "itemprop": not self.priced.isdisjoint(chain[:2]),
        }
        found = {name: 1.0 for name, is_so in known.items() if is_so}
        # Sorted: sums of weights and what is stored must not depend on the order of a set.
        found.update((f"name_{role}", 1.0) for role in sorted(self._roles_of_names(amount)))
        wider = {
            role
            for each, size in zip(chain[2:8], sizes[2:8], strict=True)
            if size < 600
            for role in page.says[each].roles
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
        text, amount = self.page.text, self.amounts[index]
        before = self.amounts[index - 1].end if index else 0
        behind = self.amounts[index + 1].begin if index + 1 < len(self.amounts) else len(text)
        # What is said beyond the next amount is said of that one.
        left = _BEFORE_NUMBERS.sub("", text[max(amount.begin - _LEFT, before) : amount.begin])
        right = text[amount.end : min(amount.end + _RIGHT, behind)]
        lines = [each.replace(JOINT, " ") for each in left.split("\n")]
        own = lines[-1]
        if any(each.isalpha() for each in own):
            roles = left_says(own)
        else:  # the label stands in the line above
            label = next((each for each in reversed(lines[:-1]) if any(sign.isalpha() for sign in each)), "")
            is_label = len(label) <= _SHORT_LABEL and not any(sign.isdigit() for sign in label)
            roles = left_says(label) if is_label else frozenset()
            if len(label.split()) > _FEW_WORDS:
                roles &= _LABELS
        for role in sorted(roles):
            found[f"left_{role}"] = 1.0
        first = right.split("\n")[0].replace(JOINT, " ")
        for role in sorted(right_says(first)):
            found[f"right_{role}"] = 1.0
        if re.match(r"\s?[/／]", first):
            found["right_slash"] = 1.0
        if re.search(r"\d\s?[x×]\s?$|[+＋]\s?\D{0,3}$|[-–−]\s?$", own):
            found["left_sign"] = 1.0
        words = sum(each.isalpha() for each in own + first)
        if words > 45:
            found["in_text"] = 1.0
        elif words == 0:
            found["alone"] = 1.0

    def _near_title(self, amount: Amount, found: dict[str, float]) -> None:
        index = bisect_left(self.section_begins, amount.begin) - 1
        begin, end = self.title or (-1, -1)
        if self.title is None:
            found["no_title"] = 1.0
        elif amount.begin < end:
            if begin - amount.begin < _JUST_BEFORE:
                found["before_title"] = 1.0
        else:
            found.update((f"title_{near}", 1.0) for near in (120, 400, 1_200, 4_000) if amount.begin - end <= near)
            between = index + 1 - bisect_left(self.section_begins, end)
            if between > 0:
                found["sections"] = min(between, 3) / 3
        if index >= 0 and self.section_begins[index] > begin and is_related(self.sections[index].text):
            found["related"] = 1.0


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
    named = next((each for each in page.above(place, 3) if page.names[each]), place)
    return ("visible:" + ".".join((page.tags[named], *page.names[named].split()[:3])))[:120]
