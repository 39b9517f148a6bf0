import{b as r}from"./chunk-ZNK2XWQV.js";import{m17 as e}from"./core-5SKZPCRT.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
