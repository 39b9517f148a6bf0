import{b as r}from"./chunk-FIPZPDZZ.js";import{m18 as e}from"./core-7CQNHVW6.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
