// The search reads signs of its own in what is typed: "..." as "every one of these words", and
// a: ^ ~ * + - as operators. A pasted error or log line is full of them, and would find nothing.
// Here they are spaces, and so is what separates the words of a page.
const signs = /["'`:^~*+<>$|\\]|(^|\s)-+|-+(?=\s|$)/g
document.addEventListener("input", ({target}) => {
  if (target.matches("[data-md-component=search-query]") && target.value.search(signs) >= 0) {
    target.value = target.value.replace(signs, " ")
  }
}, true)
