"""Declarations that Doxygen found, as directives of Sphinx's domains for C++ and C.

One pass over Doxygen's XML takes a second. breathe, which does as much and more, searches all of it for every
declaration, which takes minutes with these headers.
"""

import re
from xml.etree import ElementTree

CODE = re.compile(r"(`[^`]*`)")


def as_rst(text):
    """A comment as reStructuredText: only code between back quotes is marked."""
    return "".join(f"`{part}`" if part.startswith("`") else re.sub(r"([\\*|]|_(?!\w))", r"\\\1", part)
                   for part in CODE.split(text))


def flat(node):
    return "" if node is None else " ".join("".join(node.itertext()).split())


def inline(node):
    """A paragraph's text, without the lists in it."""
    words = as_rst(node.text or "")
    for child in node:
        if child.tag == "computeroutput":
            words += f"``{flat(child)}``"
        elif child.tag not in ("itemizedlist", "parameterlist"):
            words += inline(child)
        words += as_rst(child.tail or "")
    return " ".join(words.split())


def words_of(node):
    """The paragraphs that document a declaration."""
    lines = []
    for part in ("briefdescription", "detaileddescription"):
        for para in node.findall(f"{part}/para"):
            lines += [inline(para), ""]
            for item in para.findall("itemizedlist/listitem"):
                lines += [f"- {inline(item)}", ""]
    return lines


def indented(lines):
    return [f"   {line}" if line else "" for line in lines]


class Declarations:
    """What Doxygen found, by header, in the order of the headers."""

    def __init__(self, xml):
        self.found = {}  # header: (line, namespace, XML)
        for path in sorted(xml.glob("*.xml")):
            if path.stem in ("index", "Doxyfile"):
                continue
            compound = ElementTree.parse(path).getroot().find("compounddef")
            kind, name = compound.get("kind"), compound.findtext("compoundname")
            if kind in ("class", "struct", "union"):
                self.add(compound, name.rpartition("::")[0])
            elif kind in ("namespace", "file"):
                for member in compound.iter("memberdef"):
                    self.add(member, name if kind == "namespace" else "")
        self.classes = {compound.findtext("compoundname") for entries in self.found.values()
                        for _, _, compound in entries if compound.tag == "compounddef"}

    def add(self, node, namespace):
        place = node.find("location")
        header = place.get("file").removeprefix("include/")
        self.found.setdefault(header, []).append((int(place.get("line")), namespace, node))

    def of(self, header):
        domain, lines, scope = ("c" if header.endswith(".h") else "cpp"), [], ""
        for _, namespace, node in sorted(self.found.get(header, []), key=lambda entry: entry[0]):
            if namespace in self.classes or (domain == "cpp" and not namespace):
                continue  # shown within its class; or of a macro
            if namespace != scope:
                lines += [f".. cpp:namespace:: {namespace}", ""]
                scope = namespace
            if node.tag == "compounddef":
                lines += self.compound(node, domain)
            else:
                lines += self.member(node, domain)
        return lines

    def compound(self, node, domain):
        name = node.findtext("compoundname")
        inside = words_of(node)
        entries = [(int(member.find("location").get("line")), self.member(member, domain))
                   for member in node.iter("memberdef") if member.get("prot") == "public"]
        for entry_lines in self.found.values():
            entries += [(line, self.compound(inner, domain)) for line, outer, inner in entry_lines
                        if outer == name and inner.tag == "compounddef" and inner.get("prot") == "public"]
        for _, lines in sorted(entries, key=lambda entry: entry[0]):
            inside += lines
        return [f".. {domain}:{node.get('kind')}:: {name.rpartition('::')[2]}", "", *indented(inside)]

    def member(self, node, domain):
        kind, name, of_type = node.get("kind"), node.findtext("name"), flat(node.find("type"))
        # Sphinx reads no designated initialisers.
        arguments = re.sub(r"=\s*\{\s*\.[^{}]*\}", "={}", node.findtext("argsstring", ""))
        start = flat(node.find("initializer"))
        words = indented(words_of(node))
        if kind == "enum":
            return self.enum(node, domain, name, words)
        if kind == "function":
            before = "".join(f"{word} " for word in ("explicit", "static") if node.get(word) == "yes"
                             and (word != "static" or domain == "cpp") and word not in of_type)
            parameters = [f"{flat(one.find('type'))} {one.findtext('declname', '')}".strip()
                          for one in node.findall("templateparamlist/param")]
            template = f"template<{', '.join(parameters)}> " if parameters else ""
            return [f".. {domain}:function:: {template}{before}{of_type} {name}{arguments}", "", *words]
        if kind == "variable":
            value = f" {start}" if domain == "cpp" and 0 < len(start) < 60 else ""  # no tables
            directive = "member" if domain == "cpp" else "var"
            return [f".. {domain}:{directive}:: {of_type} {name}{arguments}{value}", "", *words]
        if kind == "typedef":
            using = domain == "cpp" and node.findtext("definition", "").startswith("using")
            shown = f"{name} = {of_type}" if using else f"{of_type} {name}{arguments}"
            return [f".. {domain}:type:: {shown}", "", *words]
        return []  # friends and macros

    def enum(self, node, domain, name, words):
        value_list = []
        for value in node.findall("enumvalue"):
            start = flat(value.find("initializer"))
            value_list.append((f"{value.findtext('name')} {start}".strip(), words_of(value)))
        if not name or name.startswith("@"):  # C's lists of constants, below their type
            lines = [".. list-table::", "   :widths: auto", ""]
            for shown, said in value_list:
                lines += [f"   * - ``{shown}``", f"     - {' '.join(said).strip()}"]
            return [*lines, ""]
        strong = "enum-class" if domain == "cpp" and node.get("strong") == "yes" else "enum"
        underlying = f" : {flat(node.find('type'))}" if domain == "cpp" and flat(node.find("type")) else ""
        inside = []
        for shown, said in value_list:
            inside += [f".. {domain}:enumerator:: {shown}", "", *indented(said)]
        return [f".. {domain}:{strong}:: {name}{underlying}", "", *words, *indented(inside)]
